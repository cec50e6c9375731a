// Sums gradients over ranks while the backward pass still runs. Gradients lie in one array in the
// order in which they become final; a bucket is a range of it, summed in place as soon as all of it
// is final. Buckets are launched strictly in order on a stream of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
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
  int64_t last_bytes = 1 << 20;  // small, since no computation is left to hide it behind
};

// Cuts [0, ends.back()) into buckets. `ends` are the ends of the parameters' gradients in order; a
// bucket ends at one of them, as soon as it holds at least the asked bytes; the last holds the
// rest. The shortest end of it that holds last_bytes becomes a bucket of its own where the other
// part holds as much.
std::vector<Bucket> cut_buckets(std::span<const int64_t> ends, DType dtype,
                                const BucketOptions& options);

// Queues the conversion of `elements` elements.
using Convert = std::function<void(const void* from, void* to, int64_t elements, Stream& stream)>;

// What gradients are summed as. All buckets but the first, which also carries what must be exact,
// are narrowed into a buffer, summed there and widened back.
struct Wire {
  DType dtype = DType::kF32;
  Convert narrow;  // neither is needed where `dtype` is that of the gradients
  Convert widen;
};

// In a world of one it does nothing, unless asked to. What it queues can be recorded: nothing but
// conversions, sums and events.
class Bucketer {
 public:
  // `gradients` should come from communicator.allocate. Everything outlives the bucketer, and all
  // ranks make it and let go of it together. Between the first advance and the end of finish
  // nothing else may use the communicator: give the bucketer one of its own (split) where layers
  // communicate too. The times of as many steps as there are slots can be kept apart.
  // `on_one_rank`: sums are queued in a world of one, too, for tests of what they are queued with.
  Bucketer(Communicator& communicator, Device& device, Stream& compute, void* gradients,
           DType dtype, std::vector<Bucket> buckets, Wire wire = {}, int slots = 1,
           bool on_one_rank = false);
  ~Bucketer();

  // In which slot the times of what is queued from now on are kept; 0 at first.
  void use_events(int slot);
  // All gradients below element `final_end` are written by what is queued on the compute stream
  // now.
  void advance(int64_t final_end);
  // Launches what is left and makes the compute stream wait for all of it: the step is summed.
  // Throws what a sum threw, on the CPU at once.
  void finish();

  std::span<const Bucket> buckets() const { return buckets_; }

  // Of the last step of this slot, once the compute stream has passed its finish(): the time that
  // was spent on sums (waiting for slower ranks included), and how much of it came after all
  // gradients were there.
  double communication_seconds(int slot = 0) const;
  double exposed_seconds(int slot = 0) const;

  // When each bucket's sum began and ended, in seconds after an event of the same device. Of the
  // same step; none where nothing is summed.
  std::vector<TimeSpan> sums(Event& since, int slot = 0) const;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null where nothing is summed
  std::vector<Bucket> buckets_;
};

}  // namespace trireme::comm
