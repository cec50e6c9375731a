// Sums gradients over ranks while the backward pass is still running. The gradients are in one
// array, in the order in which the backward pass completes them. A bucket is a range of that array;
// it is summed in place as soon as all its gradients are final. Buckets are launched strictly in
// order, on a background stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "comm/communicator.h"
#include "core/time_span.h"

namespace trireme::comm {

struct Bucket {
  int64_t begin = 0;  // elements of the gradient array
  int64_t end = 0;
  bool operator==(const Bucket&) const = default;
};

struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // small, so that communication starts early
  int64_t bytes = 25 << 20;
  int64_t last_bytes = 1 << 20;  // small, since no computation is left to overlap with
};

// Returns buckets that cover [0, ends.back()). `ends` holds the end of each parameter's gradient,
// in increasing order. A bucket ends at the first of these positions at which it holds at least the
// requested bytes; the last bucket holds the rest. The last bucket is then split in two if both
// parts can hold at least last_bytes; the second part is the smallest that does.
std::vector<Bucket> cut_buckets(std::span<const int64_t> ends, DType dtype,
                                const BucketOptions& options);

// Queues the conversion of `elements` elements on the stream.
using Convert = std::function<void(const void* from, void* to, int64_t elements, Stream& stream)>;

// The dtype in which gradients are communicated. If it differs from the dtype of the gradients,
// every bucket is cast to it in a staging buffer, summed there, and cast back, except the first
// bucket, which is always summed in the dtype of the gradients: it also carries values that must be
// exact.
struct WireFormat {
  DType dtype = DType::kF32;
  Convert to_wire;    // may be empty if `dtype` is the dtype of the gradients
  Convert from_wire;  // likewise
};

// How ranks divide the sums of buckets among themselves, which must have equal parts for all ranks:
// each receives the sums of its part, by reduce-scatter.
struct Scatter {
  int64_t shared = 0;  // the first elements of the first bucket, whose sums all ranks receive
  // If not empty, the memory of each bucket, which is not a range of an array. It may be reused
  // once the gradients of the next bucket are final.
  std::vector<std::byte*> memory = {};
  // Queues work that copies the sums out of the memory of a bucket. Only with `memory`.
  std::function<void(size_t bucket, const std::byte* memory, Stream& stream)> deliver = {};
};

// Launches the sums of one gradient array's buckets. Does nothing in a world of one rank, unless
// `on_one_rank` is set. Steps that use it can be recorded: it queues only conversions, sums and
// events.
class Bucketer {
 public:
  // `gradients` should come from communicator.allocate(). All arguments must outlive the bucketer,
  // and all ranks must construct and destroy it together. Nothing else may use the communicator
  // between the first advance() and the end of finish(); if layers communicate too, pass a
  // communicator that only the bucketer uses (see Communicator::split). `slots` is the number of
  // steps whose times are stored separately. `on_one_rank` queues the sums in a world of one rank,
  // too, for tests.
  Bucketer(Communicator& communicator, Device& device, Stream& compute, void* gradients,
           DType dtype, std::vector<Bucket> buckets, WireFormat wire = {}, int slots = 1,
           bool on_one_rank = false, std::optional<Scatter> scatter = {});
  ~Bucketer();

  // Selects the slot that stores the times of the work queued from now on; initially 0.
  void use_events(int slot);
  // Declares that the work queued on the compute stream so far completes all gradients below
  // element `final_end`, and launches the buckets that end there or before.
  void advance(int64_t final_end);
  // Launches the remaining buckets and makes the compute stream wait for all sums of the step. On
  // the CPU, where sums run synchronously, rethrows the exception of a sum that failed.
  void finish();

  // An array that is laid out like the gradients.
  struct Array {
    void* data = nullptr;
    DType dtype = DType::kF32;
  };
  // Queues the all-gather of every bucket, after the work queued on the compute stream so far. Each
  // rank contributes its part of the bucket. Begins with the last bucket, which forward needs
  // first. `arrays` has the array to gather for each bucket, which should come from
  // communicator.allocate().
  void gather(std::span<const Array> arrays);
  // Makes the compute stream wait until all elements from `begin` on have been gathered.
  void wait_for_gathered(int64_t begin);

  std::span<const Bucket> buckets() const { return buckets_; }

  // Returns the time that the latest step that used `slot` spent in sums and gathers, including the
  // time spent waiting for slower ranks. Call this and the functions below once the compute stream
  // has passed that step's finish().
  double communication_seconds(int slot = 0) const;

  // Returns when the sum of each bucket began and ended in that step, in seconds since `since`, an
  // event of the same device. Empty if nothing is summed.
  std::vector<TimeSpan> sums(Event& since, int slot = 0) const;
  // Likewise for the gathers. Empty if nothing is gathered.
  std::vector<TimeSpan> gathers(Event& since, int slot = 0) const;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null if nothing is summed
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::comm
