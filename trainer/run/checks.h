// Numerical checks of a run (CheckConfig): that loss, gradients and optimizer state are finite,
// that all ranks hold the same model, and that the loss does not spike.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/step/step.h"

namespace trireme::train {

// Detects losses that are far above those of the steps before.
class LossSpikes {
 public:
  static constexpr size_t kWindow = 100;  // preceding steps that a loss is compared with

  // A spike is a loss more than `stddevs` standard deviations above the mean of the window. 0
  // disables detection. No spikes are reported before the window is full.
  explicit LossSpikes(double stddevs) : stddevs_(stddevs) {}

  struct Spike {
    double mean = 0;     // of the window
    double stddevs = 0;  // standard deviations above the mean
  };
  // Adds the loss of a step. Returns a Spike if it is one. Ignores non-finite losses.
  std::optional<Spike> add(double loss);

 private:
  double stddevs_;
  std::vector<double> losses_;  // a ring buffer once it is full
  size_t next_ = 0;
  double first_mean_ = 0;  // of the first kWindow losses
};

class Checks {
 public:
  // All arguments must outlive this object.
  Checks(const CheckConfig& config, comm::Communicator& communicator, Step& step)
      : config_(config), communicator_(communicator), step_(step) {}

  struct NotFinite {
    std::string what;       // "step 17: rank 1: output of layer 'conv2' is not finite (nan)"
    bool ends_run = false;  // otherwise the step is skipped
  };
  // Must be called with every result, in order. If the loss or gradients of the step were not
  // finite, or the optimizer's state would not have been, finds and returns the cause. Collective.
  std::optional<NotFinite> check_result(const StepResult& result);

  // Returns whether ranks are compared at all, and whether they are compared after `steps` updates.
  bool compares() const { return config_.parameter_checksum_every_steps() > 0; }
  bool compares_after(int64_t steps) const {
    return compares() && steps % config_.parameter_checksum_every_steps() == 0;
  }
  // Returns the checksum of the parameters. Throws AgreedError, naming ranks and parameters, unless
  // all ranks hold the same parameters and optimizer state. Also compares the running statistics if
  // they have just been `averaged` over the ranks. No step may be in flight. Collective.
  uint64_t compare_ranks(int64_t steps, bool averaged) const;

 private:
  std::string find_not_finite() const;

  const CheckConfig& config_;
  comm::Communicator& communicator_;
  Step& step_;
  int64_t consecutive_skips_ = 0;
};

}  // namespace trireme::train
