// What steps compute, whatever time they take: floating-point operations, and tokens, some of which
// are padding.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "comm/communicator.h"
#include "data/dataset.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "trainer/step/step.h"

namespace trireme::train {

class StepWork {
 public:
  // The work of one or several steps on all ranks.
  struct Amount {
    double floor_seconds = 0;  // the time of the operations at the peak rate of all ranks
    double tokens = 0;         // of the batches; 0 if padding is not counted
    double padding = 0;        // out of `tokens`

    // Returns the model FLOPs utilization of steps that took this time; nullopt if no peak is
    // known.
    std::optional<double> utilization(double seconds) const;
    // Returns the share of padding; nullopt if it is not counted.
    std::optional<double> padding_share() const;
    Amount operator+(const Amount& other) const;
    Amount operator-(const Amount& other) const;
  };

  // `peak_flops` are the operations per second that this rank can do at most, 0 if unknown; then
  // the utilization of all ranks is. The step must outlive this object. Collective.
  StepWork(const Step& step, comm::Communicator& communicator, double peak_flops);

  // Counts padding from now on if the samples are texts with padding behind them. Random changes of
  // texts are not taken into account. Takes 4 bytes per sample.
  void count_padding(const data::Dataset& training, const data::OrderOptions& order, uint64_t seed);

  // Returns the work of a step, of whose batch only the numbers matter.
  Amount of(const data::Batch& batch) const;

 private:
  // Returns a number that is proportional to the work of the step.
  double size_of(const data::Batch& batch) const;

  const Step& step_;
  double full_ = 0;           // size_of a full batch
  double floor_seconds_ = 0;  // of a full batch; 0 if unknown
  std::vector<int32_t> lengths_;
  data::OrderOptions order_;
  uint64_t seed_ = 0;
  int64_t longest_ = 0;
};

}  // namespace trireme::train
