// Sums gradients over ranks while the backward pass still runs. Gradients lie in one array in the
// order in which they become final; a bucket is a range of it, summed in place as soon as all of it
// is final. Buckets are launched strictly in order on a stream of their own.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.h"

namespace trireme {

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

// In a world of one it does nothing.
class Bucketer {
 public:
  // `gradients` should come from communicator.allocate. Everything outlives the bucketer. Between
  // the first advance and the end of finish nothing else may use the communicator: give the
  // bucketer one of its own (split) where layers communicate too.
  Bucketer(Communicator& communicator, Device& device, Stream& compute, void* gradients,
           DType dtype, std::vector<Bucket> buckets);
  ~Bucketer();

  // All gradients below element `final_end` are written by what is queued on the compute stream
  // now.
  void advance(int64_t final_end);
  // Launches what is left and makes the compute stream wait for all of it: the step is summed.
  // Throws what a sum threw, on the CPU at once.
  void finish();

  std::span<const Bucket> buckets() const { return buckets_; }

  // Of the last finished step: the time that the communication stream spent on sums (waiting for
  // slower ranks included), and the part of it that the compute stream had to wait for in finish().
  double communication_seconds() const;
  double exposed_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null in a world of one
  std::vector<Bucket> buckets_;
};

}  // namespace trireme
