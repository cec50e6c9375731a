#include "tests/ops/bench.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/alignment.h"

namespace trireme::ops {
namespace {

constexpr size_t kGuard = kDeviceAlignment;  // bytes before and after each argument

// A 16-bit floating-point number, implemented independently of the backends.
template <int kExponentBits, int kMantissaBits>
class Float16 {
 public:
  Float16() = default;
  // Rounds to nearest, ties to even.
  explicit Float16(double value) {
    if (std::isnan(value)) {
      bits_ = kInfinity + 1;
      return;
    }
    const double magnitude = std::min(std::abs(value), 0x1p300);
    const int exponent = magnitude > 0 ? std::max(std::ilogb(magnitude), kMin) : kMin;
    const double steps = std::nearbyint(std::ldexp(magnitude, kMantissaBits - exponent));
    const double bits = std::ldexp(exponent - kMin, kMantissaBits) + steps;
    bits_ = static_cast<uint16_t>(std::min<double>(bits, kInfinity));
    if (std::signbit(value)) bits_ |= 0x8000;
  }
  explicit operator double() const {
    const int magnitude = bits_ & 0x7FFF;
    const int exponent = std::max(1, magnitude >> kMantissaBits);
    const int steps = magnitude - ((exponent - 1) << kMantissaBits);
    double value = std::ldexp(steps, exponent - 1 + kMin - kMantissaBits);
    if (magnitude >= kInfinity) value = std::numeric_limits<double>::infinity();
    if (magnitude > kInfinity) value = std::numeric_limits<double>::quiet_NaN();
    return bits_ & 0x8000 ? -value : value;
  }

 private:
  static constexpr int kMin = 2 - (1 << (kExponentBits - 1));  // exponent of a normal number
  static constexpr int kInfinity = ((1 << kExponentBits) - 1) << kMantissaBits;  // its bits

  uint16_t bits_ = 0;
};

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

// Calls f(T()) with the element type.
template <class F>
auto with_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kF64:
      return f(double());
    case DType::kF16:
      return f(Float16<5, 10>());
    case DType::kBF16:
      return f(Float16<8, 7>());
    case DType::kI32:
      return f(int32_t());
    case DType::kU8:
      return f(uint8_t());
    default:
      return f(float());
  }
}

// Device memory with a guard before and after it.
class Guarded {
 public:
  // `shift`: offset in bytes from aligned memory.
  Guarded(Device& device, Stream& stream, const Bytes& content, size_t shift = 0)
      : device_(device),
        stream_(stream),
        begin_(kGuard + shift),
        buffer_(device.allocate(begin_ + content.size() + kGuard)) {
    Bytes all(buffer_.bytes(), kPoison);
    std::copy(content.begin(), content.end(), all.begin() + begin());
    device_.copy(buffer_.data(), all.data(), all.size(), stream_);
    stream_.synchronize();
  }
  void* data() const { return buffer_.data() + begin_; }
  Bytes content() const {
    const Bytes all = everything();
    return {all.begin() + begin(), all.end() - kGuard};
  }
  bool guards_hold() const {
    const Bytes all = everything();
    const auto holds = [](std::byte b) { return b == kPoison; };
    return std::all_of(all.begin(), all.begin() + begin(), holds) &&
           std::all_of(all.end() - kGuard, all.end(), holds);
  }

 private:
  ptrdiff_t begin() const { return static_cast<ptrdiff_t>(begin_); }
  Bytes everything() const {
    Bytes all(buffer_.bytes());
    device_.copy(all.data(), buffer_.data(), all.size(), stream_);
    stream_.synchronize();
    return all;
  }

  Device& device_;
  Stream& stream_;
  size_t begin_;
  Buffer buffer_;
};

}  // namespace

Bench::Bench(std::unique_ptr<Device> device, const BackendMaker& maker)
    : device_(std::move(device)),
      backend_(maker(*device_)),
      stream_(device_->create_stream(StreamKind::kCompute)) {}

Bytes Bench::pack(const TensorSpec& spec, std::span<const double> values) {
  if (spec.layout.opaque()) {
    const std::vector<TensorSpec> ends{spec.with(Layout::row_major()), spec};
    const auto plan = backend_->plan(Reorder{}, ends);
    return run(Reorder{}, *plan, {pack(ends[0], values), Bytes(spec.bytes(), kPoison)})[1];
  }
  return with_type(spec.dtype, [&]<class T>(T) { return pack_as<T>(spec, values); });
}

std::vector<double> Bench::unpack(const TensorSpec& spec, const Bytes& bytes) {
  if (spec.layout.opaque()) {
    const std::vector<TensorSpec> ends{spec, spec.with(Layout::row_major())};
    const auto plan = backend_->plan(Reorder{}, ends);
    return unpack(ends[1], run(Reorder{}, *plan, {bytes, Bytes(ends[1].bytes(), kPoison)})[1]);
  }
  return with_type(spec.dtype, [&]<class T>(T) { return unpack_as<T>(spec, bytes); });
}

std::vector<Bytes> Bench::run(const Op& op, const OpPlan& plan, const std::vector<Bytes>& memory,
                              std::optional<Alias> alias, std::span<const size_t> shifts) {
  std::vector<std::unique_ptr<Guarded>> held(memory.size());
  std::vector<void*> args(memory.size(), nullptr);
  const auto is_alias = [&](size_t i) { return alias && i == static_cast<size_t>(alias->first); };
  for (size_t i = 0; i < memory.size(); ++i) {
    if (is_absent(plan.specs()[i]) || is_alias(i)) continue;
    held[i] =
        std::make_unique<Guarded>(*device_, *stream_, memory[i], shifts.empty() ? 0 : shifts[i]);
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

}  // namespace trireme::ops
