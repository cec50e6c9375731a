#include "comm/bucketer.h"

#include <algorithm>
#include <chrono>

namespace trireme {
namespace {

using Clock = std::chrono::steady_clock;

double seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Cuts the fewest gradients that are at least so many elements off the end of the last bucket, if
// as many stay.
void split_last(std::vector<Bucket>& buckets, std::span<const int64_t> ends, int64_t elements) {
  const Bucket whole = buckets.back();
  int64_t cut = whole.begin;
  for (int64_t end : ends) {
    if (end > cut && whole.end - end >= elements) cut = end;
  }
  if (cut - whole.begin < std::max<int64_t>(1, elements)) return;
  buckets.back().end = cut;
  buckets.push_back({cut, whole.end});
}

}  // namespace

std::vector<Bucket> cut_buckets(std::span<const int64_t> ends, DType dtype,
                                const BucketOptions& options) {
  std::vector<Bucket> buckets;
  int64_t begin = 0;
  int64_t wanted = options.first_bytes;
  const auto size = static_cast<int64_t>(size_of(dtype));
  for (size_t i = 0; i < ends.size(); ++i) {
    const bool last = i + 1 == ends.size();
    if (ends[i] == begin || (!last && (ends[i] - begin) * size < wanted)) continue;
    buckets.push_back({begin, ends[i]});
    begin = ends[i];
    wanted = options.bytes;
  }
  if (!buckets.empty()) split_last(buckets, ends, options.last_bytes / size);
  return buckets;
}

struct Bucketer::State {
  State(Communicator& its_communicator, Device& device, Stream& its_compute, void* its_gradients,
        DType its_dtype, size_t buckets)
      : communicator(its_communicator),
        compute(its_compute),
        gradients(static_cast<std::byte*>(its_gradients)),
        dtype(its_dtype),
        done(device.create_event()) {
    for (size_t i = 0; i < buckets; ++i) ready.push_back(device.create_event());
    stream = device.create_stream(StreamKind::kBackground);
  }

  void launch(const Bucket& bucket) {
    Event& event = *ready[next++];
    compute.record(event);
    stream->wait(event);
    stream->run(Task([this] { began = Clock::now(); }));
    communicator.all_reduce_sum(gradients + static_cast<size_t>(bucket.begin) * size_of(dtype),
                                bucket.end - bucket.begin, dtype, *stream);
    stream->run(Task([this] { summing += Clock::now() - began; }));
  }

  Communicator& communicator;
  Stream& compute;
  std::byte* gradients;
  DType dtype;
  size_t next = 0;  // bucket to launch
  std::vector<std::unique_ptr<Event>> ready;
  std::unique_ptr<Event> done;
  // Written on the communication stream, read when it is done.
  Clock::time_point began;
  Clock::duration summing{};
  double communication_seconds = 0;
  double exposed_seconds = 0;
  std::unique_ptr<Stream> stream;  // first to go: it uses the rest
};

Bucketer::Bucketer(Communicator& communicator, Device& device, Stream& compute, void* gradients,
                   DType dtype, std::vector<Bucket> buckets)
    : buckets_(std::move(buckets)) {
  if (communicator.size() == 1) return;
  state_ =
      std::make_unique<State>(communicator, device, compute, gradients, dtype, buckets_.size());
}

Bucketer::~Bucketer() = default;

void Bucketer::advance(int64_t final_end) {
  if (!state_) return;
  while (state_->next < buckets_.size() && buckets_[state_->next].end <= final_end) {
    state_->launch(buckets_[state_->next]);
  }
}

void Bucketer::finish() {
  if (!state_ || buckets_.empty()) return;
  advance(buckets_.back().end);
  state_->stream->record(*state_->done);
  const auto begin = Clock::now();
  state_->compute.wait(*state_->done);
  state_->exposed_seconds = seconds(Clock::now() - begin);
  state_->communication_seconds = seconds(state_->summing);
  state_->summing = {};
  state_->next = 0;
}

double Bucketer::communication_seconds() const {
  return state_ ? state_->communication_seconds : 0;
}

double Bucketer::exposed_seconds() const { return state_ ? state_->exposed_seconds : 0; }

}  // namespace trireme
