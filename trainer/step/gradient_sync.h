// The gradients of a step and their sums over ranks: bucket by bucket, concurrently with the
// backward pass. With ZeRO also the exchange of updated parameters, concurrently with the forward
// pass.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/bucketer.h"
#include "comm/communicator.h"
#include "core/time_span.h"
#include "model/program.h"
#include "ops/backend.h"
#include "ops/step_state.h"
#include "trainer/config/config.pb.h"
#include "trainer/optimizer/shard.h"
#include "trainer/step/conversion.h"

namespace trireme::train {

class GradientSync {
 public:
  // `communicator` sums the device's memory, and is used for nothing else during a step, since
  // buckets are summed concurrently with the layers' own collectives. `compute` is the stream of
  // the backward pass. `slots` is the number of steps whose times are stored separately. If the
  // shard is not whole, each rank receives the sums of its shard and of the metrics. If it has the
  // gradients, those of a bucket are transient (see CompileOptions), and the sums of each pass are
  // added to the gradients. All arguments must outlive this object, which all ranks must construct
  // and destroy together.
  GradientSync(const BucketConfig& config, comm::Communicator& communicator, ops::Backend& backend,
               const model::Parameters& parameters, Stream& compute, int slots, Shard shard,
               const model::Program& program);

  // Holds gradient_elements() elements.
  const Buffer& gradients() const { return gradients_; }
  // Is ModelArrays::buckets.
  std::byte* bucket_memory() const { return bucket_memory_.data(); }
  std::span<const comm::Bucket> buckets() const { return bucketer_->buckets(); }

  // Queue the sums of a step. Call begin() first and begin_pass() before each backward pass, which
  // then calls advance(), unless it is empty, with the number of final elements; then call
  // finish(), which makes the compute stream wait for the sums.
  void begin(int slot);
  void begin_pass(int64_t pass, int64_t passes);
  const std::function<void(int64_t)>& advance() const { return sums_pass_ ? advance_ : none_; }
  void finish() { bucketer_->finish(); }
  // Queues the exchange of arrays, one for each bucket, which are laid out like the parameters.
  // Only with `scatter`: each rank contributes its shard.
  void gather(std::span<const comm::Bucketer::Array> arrays) { bucketer_->gather(arrays); }
  // Makes the compute stream wait until all elements from `begin` on have been gathered.
  void wait_for_gathered(int64_t begin) { bucketer_->wait_for_gathered(begin); }
  // Replace begin() and advance() when a step is recomputed without sums.
  void begin_without_sums() { final_ = ops::kMetricCount; }
  const std::function<void(int64_t)>& advance_without_sums() const { return advance_without_sums_; }

  // Return the times of the latest step that used the slot, once it is done; see Bucketer.
  double seconds(int slot) const { return bucketer_->communication_seconds(slot); }
  std::vector<TimeSpan> sums(Event& since, int slot) const { return bucketer_->sums(since, slot); }
  std::vector<TimeSpan> gathers(Event& since, int slot) const {
    return bucketer_->gathers(since, slot);
  }

  // Returns the arguments of gather() for an f32 array or, with `low_precision`, for what the
  // network reads: the copy in low precision, and the other parameters in f32.
  std::vector<comm::Bucketer::Array> arrays_of(void* values, void* low_precision = nullptr) const;

 private:
  comm::WireFormat wire_format(const BucketConfig& config, ops::Backend& backend);
  std::optional<comm::Scatter> scatter(const model::Program& program);
  void plan_additions();
  void deliver(size_t bucket, const std::byte* memory, Stream& stream);
  void note_final(int64_t end);

  // Adds the sums of a bucket to the gradients.
  struct Addition {
    std::unique_ptr<ops::OpPlan> plan;
    std::array<void*, ops::Add::kArgs> args;
    Buffer scratch;
  };

  ops::Backend& backend_;
  Device& device_;
  const model::Parameters& parameters_;
  const Shard shard_;
  Stream& compute_;
  Buffer gradients_;
  // Empty unless the shard has the gradients:
  Buffer bucket_memory_;
  std::vector<size_t> bucket_offsets_;  // in bytes in bucket_memory_
  std::vector<Addition> additions_;     // by bucket
  bool sums_pass_ = false;              // the current pass is followed by sums
  bool first_pass_ = true, last_pass_ = true;
  std::unique_ptr<Conversion> to_wire_, from_wire_;  // null if gradients are sent in f32
  std::unique_ptr<comm::Bucketer> bucketer_;
  std::function<void(int64_t)> advance_, advance_without_sums_;
  const std::function<void(int64_t)> none_;
  int64_t final_ = ops::kMetricCount;  // gradients before it are final in the current step
};

}  // namespace trireme::train
