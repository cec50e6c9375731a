// Sums gradients over ranks while the backward pass still runs. Gradients lie in one array in the
// order in which they become final; a bucket is a range of it, summed in place as soon as all of it is
// final. Buckets are launched strictly in order on a stream of their own.
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
};

struct BucketOptions {
  int64_t first_bytes = 1 << 20;  // small, so that communication starts early
  int64_t bytes = 25 << 20;
};

// Cuts [0, ends.back()) into buckets. `ends` are the ends of the parameters' gradients in order; a
// bucket ends at one of them, as soon as it holds at least the asked bytes.
std::vector<Bucket> cut_buckets(std::span<const int64_t> ends, DType dtype,
                                const BucketOptions& options);

class Bucketer {
 public:
  // `gradients` should come from communicator.allocate. Everything outlives the bucketer.
  Bucketer(Communicator& communicator, Device& device, Stream& compute, void* gradients,
           DType dtype, std::vector<Bucket> buckets);
  ~Bucketer();

  // All gradients below element `final_end` are written by what is queued on the compute stream now.
  void advance(int64_t final_end);
  // Launches what is left and makes the compute stream wait for all of it: the step is summed.
  void finish();

  std::span<const Bucket> buckets() const { return buckets_; }
  // Of the last finished step: time from the first launch's readiness to the last sum's end spent in
  // communication, and the part of it that the compute stream had to wait for.
  double communication_seconds() const;
  double exposed_seconds() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  std::vector<Bucket> buckets_;
};

}  // namespace trireme
