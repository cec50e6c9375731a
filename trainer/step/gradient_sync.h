// The gradients of a step and their sum over ranks: bucket after bucket, beside the backward pass.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "comm/bucketer.h"
#include "comm/communicator.h"
#include "core/time_span.h"
#include "model/parameters.h"
#include "ops/backend.h"
#include "ops/step_state.h"
#include "trainer/config/config.pb.h"
#include "trainer/step/conversion.h"

namespace trireme::train {

class GradientSync {
 public:
  // `communicator` is over the device's memory, `compute` the stream of the backward pass. Times of
  // as many steps as there are slots are kept apart. Everything outlives it, and all ranks make it
  // and let go of it together.
  GradientSync(const BucketConfig& config, comm::Communicator& communicator, ops::Backend& backend,
               const model::Parameters& parameters, Stream& compute, int slots);

  // Parameters::trained_elements.
  const Buffer& gradients() const { return gradients_; }
  std::span<const comm::Bucket> buckets() const { return bucketer_->buckets(); }

  // While a step is queued: begin(); then the last backward pass calls advance(), with how many
  // elements are final; then finish(), after which the compute stream has the sums.
  void begin(int slot);
  const std::function<void(int64_t)>& advance() const { return advance_; }
  void finish() { bucketer_->finish(); }
  // As begin() and advance(), where the step is computed again and nothing is summed.
  void begin_alone() { final_ = ops::kMetricCount; }
  const std::function<void(int64_t)>& advance_alone() const { return advance_alone_; }

  // Of the slot's step, once it is done; see Bucketer.
  double seconds(int slot) const { return bucketer_->communication_seconds(slot); }
  std::vector<TimeSpan> sums(Event& since, int slot) const { return bucketer_->sums(since, slot); }

 private:
  comm::Wire wire(const BucketConfig& config, ops::Backend& backend);
  void note_final(int64_t end);

  Device& device_;
  // Its own, since sums of buckets run beside what layers say to each other.
  std::unique_ptr<comm::Communicator> communicator_;
  Buffer gradients_;
  std::unique_ptr<Conversion> narrow_, widen_;  // null: gradients travel in f32
  std::unique_ptr<comm::Bucketer> bucketer_;
  std::function<void(int64_t)> advance_, advance_alone_;
  int64_t final_ = ops::kMetricCount;  // gradients in front are final in the step at hand
};

}  // namespace trireme::train
