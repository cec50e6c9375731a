#include "tests/ops/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace trireme {
namespace {

constexpr size_t kGuard = 64;  // before and after each argument

int64_t place(const TensorSpec& spec, int64_t i) {
  const Shape& s = spec.shape;
  if (spec.layout.kind() != Layout::Kind::kChannelsLast || s.rank() < 3) return i;
  const int64_t places = s.elements() / (s[0] * s[1]);
  const int64_t n = i / (s[1] * places), c = i / places % s[1], p = i % places;
  return (n * places + p) * s[1] + c;
}

template <class T>
Bytes pack_as(const TensorSpec& spec, std::span<const double> values) {
  Bytes bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    const auto at = static_cast<size_t>(place(spec, static_cast<int64_t>(i)));
    std::memcpy(bytes.data() + at * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <class T>
std::vector<double> unpack_as(const TensorSpec& spec, const Bytes& bytes) {
  std::vector<double> values(static_cast<size_t>(spec.shape.elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    T value{};
    const auto at = static_cast<size_t>(place(spec, static_cast<int64_t>(i)));
    std::memcpy(&value, bytes.data() + at * sizeof(T), sizeof(T));
    values[i] = static_cast<double>(value);
  }
  return values;
}

// Whether the host itself can read and write memory of that spec.
bool is_plain(const TensorSpec& spec) {
  return !spec.layout.opaque() && spec.dtype != DType::kBF16 && spec.dtype != DType::kF16;
}

TensorSpec plain(const TensorSpec& spec) { return {DType::kF32, spec.shape, Layout::row_major()}; }

// Memory on a device with a guard at either end.
class Guarded {
 public:
  Guarded(Device& device, Stream& stream, const Bytes& content)
      : device_(device),
        stream_(stream),
        bytes_(content.size()),
        buffer_(device.allocate(bytes_ + 2 * kGuard)) {
    Bytes all(bytes_ + 2 * kGuard, kPoison);
    std::copy(content.begin(), content.end(), all.begin() + kGuard);
    device_.copy(buffer_.data(), all.data(), all.size(), stream_);
    stream_.synchronize();
  }
  void* data() const { return buffer_.data() + kGuard; }
  Bytes content() const {
    const Bytes all = everything();
    return {all.begin() + kGuard, all.end() - kGuard};
  }
  bool guards_hold() const {
    const Bytes all = everything();
    const auto holds = [](std::byte b) { return b == kPoison; };
    return std::all_of(all.begin(), all.begin() + kGuard, holds) &&
           std::all_of(all.end() - kGuard, all.end(), holds);
  }

 private:
  Bytes everything() const {
    Bytes all(bytes_ + 2 * kGuard);
    device_.copy(all.data(), buffer_.data(), all.size(), stream_);
    stream_.synchronize();
    return all;
  }

  Device& device_;
  Stream& stream_;
  size_t bytes_;
  Buffer buffer_;
};

}  // namespace

Bench::Bench(std::unique_ptr<Device> device, const BackendMaker& maker)
    : device_(std::move(device)),
      backend_(maker(*device_)),
      stream_(device_->create_stream(StreamKind::kCompute)) {}

Bytes Bench::pack(const TensorSpec& spec, std::span<const double> values) {
  if (!is_plain(spec)) {
    const std::vector<TensorSpec> ends{plain(spec), spec};
    const auto plan = backend_->plan(Reorder{}, ends);
    return run(Reorder{}, *plan, {pack(ends[0], values), Bytes(spec.bytes(), kPoison)})[1];
  }
  switch (spec.dtype) {
    case DType::kF64:
      return pack_as<double>(spec, values);
    case DType::kI32:
      return pack_as<int32_t>(spec, values);
    case DType::kU8:
      return pack_as<uint8_t>(spec, values);
    default:
      return pack_as<float>(spec, values);
  }
}

std::vector<double> Bench::unpack(const TensorSpec& spec, const Bytes& bytes) {
  if (!is_plain(spec)) {
    const std::vector<TensorSpec> ends{spec, plain(spec)};
    const auto plan = backend_->plan(Reorder{}, ends);
    return unpack(ends[1], run(Reorder{}, *plan, {bytes, Bytes(ends[1].bytes(), kPoison)})[1]);
  }
  switch (spec.dtype) {
    case DType::kF64:
      return unpack_as<double>(spec, bytes);
    case DType::kI32:
      return unpack_as<int32_t>(spec, bytes);
    case DType::kU8:
      return unpack_as<uint8_t>(spec, bytes);
    default:
      return unpack_as<float>(spec, bytes);
  }
}

std::vector<Bytes> Bench::run(const Op& op, const OpPlan& plan, const std::vector<Bytes>& memory,
                              std::optional<Alias> alias) {
  std::vector<std::unique_ptr<Guarded>> held(memory.size());
  std::vector<void*> args(memory.size(), nullptr);
  const auto is_alias = [&](size_t i) { return alias && i == static_cast<size_t>(alias->first); };
  for (size_t i = 0; i < memory.size(); ++i) {
    if (is_absent(plan.specs()[i]) || is_alias(i)) continue;
    held[i] = std::make_unique<Guarded>(*device_, *stream_, memory[i]);
    args[i] = held[i]->data();
  }
  if (alias) {
    args[static_cast<size_t>(alias->first)] = args[static_cast<size_t>(alias->second)];
  }
  const Guarded scratch(*device_, *stream_, Bytes(plan.scratch_bytes(), kPoison));
  plan.encode(*stream_, args, scratch.data());
  stream_->synchronize();
  EXPECT_TRUE(scratch.guards_hold()) << "writes beyond its scratch";
  std::vector<Bytes> after(memory.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    if (!held[i]) continue;
    EXPECT_TRUE(held[i]->guards_hold()) << "writes beyond argument " << i;
    after[i] = held[i]->content();
    const bool overwritten = alias && i == static_cast<size_t>(alias->second);
    if (!is_output(op, static_cast<int>(i)) && !overwritten) {
      EXPECT_TRUE(after[i] == memory[i]) << "writes into input " << i;
    }
  }
  if (alias) {
    after[static_cast<size_t>(alias->first)] = after[static_cast<size_t>(alias->second)];
  }
  return after;
}

}  // namespace trireme
