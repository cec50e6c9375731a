// What a run checks of its own numbers, all ranks together: that loss and gradients are finite,
// that every rank holds the same model, that the loss does not leap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "trainer/config/config.h"
#include "trainer/step/step.h"

namespace trireme::train {

// Losses that stand out from those of the steps before.
class LossSpikes {
 public:
  static constexpr size_t kWindow =
      100;  // steps that a loss is held against; none before stands out

  // `deviations` of the losses' standard deviation above their mean; 0: never.
  explicit LossSpikes(double deviations) : deviations_(deviations) {}

  struct Spike {
    double mean = 0;
    double deviations = 0;  // above the mean
  };
  std::optional<Spike> add(double loss);

 private:
  double deviations_;
  std::vector<double> losses_;  // a ring once it is full
  size_t next_ = 0;
};

class Checks {
 public:
  // Everything outlives it.
  Checks(const CheckConfig& config, comm::Communicator& communicator, Step& step)
      : config_(config), communicator_(communicator), step_(step) {}

  struct NotFinite {
    std::string what;   // "step 17: rank 1: output of layer 'conv2' is not finite (nan)"
    bool ends = false;  // the run, rather than only leaving out the step
  };
  // To be told every result, in order: what was wrong with the step, if its loss or gradients were
  // not finite. All ranks call it together.
  std::optional<NotFinite> look_at(const StepResult& result);

  bool compares() const { return config_.parameter_checksum_every_steps() > 0; }
  // After so many updates.
  bool compares_after(int64_t steps) const {
    return compares() && steps % config_.parameter_checksum_every_steps() == 0;
  }
  // Throws AgreedError, naming ranks and parameters, unless all ranks hold the same parameters and
  // optimizer state and, while they are `averaged`, running values. Returns the checksum of the
  // parameters. All ranks call it together, with no step under way.
  uint64_t compare_ranks(int64_t steps, bool averaged) const;

 private:
  std::string find_not_finite() const;

  const CheckConfig& config_;
  comm::Communicator& communicator_;
  Step& step_;
  int64_t skipped_in_a_row_ = 0;
};

}  // namespace trireme::train
