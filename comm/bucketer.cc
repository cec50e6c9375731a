#include "comm/bucketer.h"

#include <algorithm>

#include "comm/memory.h"

namespace trireme::comm {
namespace {

// Splits the last bucket so that the second part is the smallest with at least `elements` elements,
// unless the first part would have fewer.
void split_last(std::vector<Bucket>& buckets, std::span<const int64_t> ends, int64_t elements) {
  const Bucket last = buckets.back();
  int64_t cut = last.begin;
  for (int64_t end : ends) {
    if (end > cut && last.end - end >= elements) cut = end;
  }
  if (cut - last.begin < elements) return;
  buckets.back().end = cut;
  buckets.push_back({cut, last.end});
}

}  // namespace

std::vector<Bucket> cut_buckets(std::span<const int64_t> ends, DType dtype,
                                const BucketOptions& options) {
  std::vector<Bucket> buckets;
  int64_t begin = 0;
  int64_t min_bytes = options.first_bytes;
  const auto size = static_cast<int64_t>(size_of(dtype));
  for (size_t i = 0; i < ends.size(); ++i) {
    const bool last = i + 1 == ends.size();
    if (ends[i] == begin || (!last && (ends[i] - begin) * size < min_bytes)) continue;
    buckets.push_back({begin, ends[i]});
    begin = ends[i];
    min_bytes = options.bytes;
  }
  if (!buckets.empty()) {
    split_last(buckets, ends, std::max<int64_t>(1, options.last_bytes / size));
  }
  return buckets;
}

struct Bucketer::State {
  // The events of one step.
  struct Times {
    Times(Device& device, size_t buckets, bool gathers) {
      const auto event = [&] { return device.create_event(EventKind::kTimed); };
      for (size_t i = 0; i < buckets; ++i) {
        begin.push_back(event());
        end.push_back(event());
        if (!gathers) continue;
        gather_begin.push_back(event());
        gather_end.push_back(event());
      }
    }

    std::vector<std::unique_ptr<Event>> begin;  // of the sum, by bucket
    std::vector<std::unique_ptr<Event>> end;
    // Of the gather, by bucket; empty if nothing is gathered:
    std::vector<std::unique_ptr<Event>> gather_begin, gather_end;
    bool finished = false;
  };

  State(Communicator& its_communicator, Device& its_device, Stream& its_compute,
        void* its_gradients, DType its_dtype, std::span<const Bucket> its_buckets,
        WireFormat its_wire, int slots, std::optional<Scatter> its_scatter)
      : communicator(its_communicator),
        device(its_device),
        compute(its_compute),
        gradients(static_cast<std::byte*>(its_gradients)),
        dtype(its_dtype),
        buckets(its_buckets),
        wire(std::move(its_wire)),
        scatter(std::move(its_scatter)),
        done(device.create_event()) {
    for (size_t i = 0; i < buckets.size(); ++i) {
      ready.push_back(device.create_event());
      gathered.push_back(device.create_event());
      delivered.push_back(device.create_event());
    }
    for (int i = 0; i < slots; ++i) times.emplace_back(device, buckets.size(), scatter.has_value());
    now = &times_of(0);
    if (wire.dtype != dtype) allocate_staging();
    if (communicator.concurrent()) background = device.create_stream(StreamKind::kBackground);
  }

  void allocate_staging() {
    check_summable("a bucket", wire.dtype);
    int64_t longest = 0;
    for (const Bucket& bucket : buckets.subspan(std::min<size_t>(1, buckets.size()))) {
      longest = std::max(longest, bucket.end - bucket.begin);
    }
    staging = communicator.allocate(static_cast<size_t>(longest) * size_of(wire.dtype));
  }

  Times& times_of(int slot) { return times.at(static_cast<size_t>(slot)); }

  Stream& stream() { return background ? *background : compute; }

  void launch() {
    const size_t i = next++;
    if (background) {
      compute.record(*ready[i]);
      background->wait(*ready[i]);
    }
    stream().record(*now->begin[i]);
    const CallTag tag = {static_cast<int32_t>(i)};
    if (i == 0 || wire.dtype == dtype) {
      sum(i, memory_of(i), dtype, tag);
    } else {
      sum_in_wire_dtype(i, tag);
    }
    if (scatter && scatter->deliver) {
      scatter->deliver(i, memory_of(i), stream());
      stream().record(*delivered[i]);
      // What the compute stream does from now on may reuse the memory of the bucket before.
      if (background && i > 0) compute.wait(*delivered[i - 1]);
    }
    stream().record(*now->end[i]);
  }

  std::byte* memory_of(size_t i) const {
    const bool separate = scatter && !scatter->memory.empty();
    return separate ? scatter->memory[i] : at(gradients, buckets[i].begin, dtype);
  }

  // Returns the elements of a bucket whose sum this rank receives, relative to its begin.
  Bucket summed(size_t i) const {
    const int64_t elements = buckets[i].end - buckets[i].begin;
    if (!scatter) return {0, elements};
    const int64_t part = elements / communicator.size();
    return {communicator.rank() * part, (communicator.rank() + 1) * part};
  }

  void sum(size_t i, std::byte* data, DType type, CallTag tag) {
    const auto [begin, end] = summed(i);
    if (!scatter) return communicator.all_reduce_sum(data, end - begin, type, stream(), tag);
    communicator.reduce_scatter_sum(data, at(data, begin, type), end - begin, type, stream(), tag);
    if (i == 0) communicator.broadcast(data, scatter->shared, type, /*root=*/0, stream(), tag);
  }

  void sum_in_wire_dtype(size_t i, CallTag tag) {
    std::byte* const data = memory_of(i);
    wire.to_wire(data, staging.data(), buckets[i].end - buckets[i].begin, stream());
    sum(i, staging.data(), wire.dtype, tag);
    const auto [begin, end] = summed(i);
    wire.from_wire(at(staging.data(), begin, wire.dtype), at(data, begin, dtype), end - begin,
                   stream());
  }

  void gather(std::span<const Array> arrays) {
    if (background) {
      compute.record(*done);
      background->wait(*done);
    }
    for (size_t i = buckets.size(); i-- > 0;) {
      const auto& [begin, end] = buckets[i];
      const auto& [data, type] = arrays[i];
      const int64_t part = (end - begin) / communicator.size();
      stream().record(*now->gather_begin[i]);
      communicator.all_gather(at(data, begin + communicator.rank() * part, type),
                              at(data, begin, type), part, type, stream(),
                              {static_cast<int32_t>(i)});
      stream().record(*now->gather_end[i]);
      stream().record(*gathered[i]);
    }
    waiting = buckets.size();
  }

  void wait_for_gathered(int64_t begin) {
    for (; waiting > 0 && buckets[waiting - 1].end > begin; --waiting) {
      if (background) compute.wait(*gathered[waiting - 1]);
    }
  }

  void join() {
    if (!background) return;
    background->record(*done);
    compute.wait(*done);
  }

  double communication_seconds(const Times& then) const {
    double seconds = 0;
    for (size_t i = 0; i < buckets.size(); ++i) {
      seconds += device.seconds_between(*then.begin[i], *then.end[i]);
    }
    for (size_t i = 0; i < then.gather_begin.size(); ++i) {
      seconds += device.seconds_between(*then.gather_begin[i], *then.gather_end[i]);
    }
    return seconds;
  }

  using Events = std::vector<std::unique_ptr<Event>>;
  std::vector<TimeSpan> spans(Event& since, const Events& begins, const Events& ends) const {
    std::vector<TimeSpan> found;
    for (size_t i = 0; i < begins.size(); ++i) {
      found.push_back(
          {device.seconds_between(since, *begins[i]), device.seconds_between(since, *ends[i])});
    }
    return found;
  }

  Communicator& communicator;
  Device& device;
  Stream& compute;
  std::byte* gradients;
  DType dtype;
  std::span<const Bucket> buckets;
  WireFormat wire;
  std::optional<Scatter> scatter;
  Buffer staging;   // a bucket in the wire dtype
  size_t next = 0;  // the next bucket to launch
  std::vector<std::unique_ptr<Event>> ready;
  std::unique_ptr<Event> done;
  std::vector<std::unique_ptr<Event>> gathered;
  std::vector<std::unique_ptr<Event>> delivered;
  size_t waiting = 0;  // the compute stream has not waited for buckets below it to be gathered
  std::vector<Times> times;
  Times* now = nullptr;  // of the step that is being queued
  // The stream of the sums; null if they run on the compute stream. It uses the members above, so
  // it must be destroyed first.
  std::unique_ptr<Stream> background;
};

Bucketer::Bucketer(Communicator& communicator, Device& device, Stream& compute, void* gradients,
                   DType dtype, std::vector<Bucket> buckets, WireFormat wire, int slots,
                   bool on_one_rank, std::optional<Scatter> scatter)
    : buckets_(std::move(buckets)) {
  if ((communicator.size() == 1 && !on_one_rank) || buckets_.empty()) return;
  state_ = std::make_unique<State>(communicator, device, compute, gradients, dtype, buckets_,
                                   std::move(wire), slots, std::move(scatter));
}

Bucketer::~Bucketer() = default;

void Bucketer::use_events(int slot) {
  if (state_) state_->now = &state_->times_of(slot);
}

void Bucketer::advance(int64_t final_end) {
  if (!state_) return;
  while (state_->next < buckets_.size() && buckets_[state_->next].end <= final_end) {
    state_->launch();
  }
}

void Bucketer::finish() {
  if (!state_) return;
  advance(buckets_.back().end);
  state_->join();
  state_->next = 0;
  state_->now->finished = true;
}

void Bucketer::gather(std::span<const Array> arrays) {
  if (state_) state_->gather(arrays);
}

void Bucketer::wait_for_gathered(int64_t begin) {
  if (state_) state_->wait_for_gathered(begin);
}

double Bucketer::communication_seconds(int slot) const {
  if (!state_) return 0;
  const State::Times& then = state_->times_of(slot);
  return then.finished ? state_->communication_seconds(then) : 0;
}

std::vector<TimeSpan> Bucketer::sums(Event& since, int slot) const {
  if (!state_) return {};
  const State::Times& then = state_->times_of(slot);
  return then.finished ? state_->spans(since, then.begin, then.end) : std::vector<TimeSpan>();
}

std::vector<TimeSpan> Bucketer::gathers(Event& since, int slot) const {
  if (!state_) return {};
  const State::Times& then = state_->times_of(slot);
  return then.finished ? state_->spans(since, then.gather_begin, then.gather_end)
                       : std::vector<TimeSpan>();
}

}  // namespace trireme::comm
