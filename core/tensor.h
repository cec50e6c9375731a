// What a tensor is (TensorSpec) and the order of its elements in memory (Layout). Memory itself is
// passed as plain pointers beside a spec that was fixed when the operation was planned.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "core/shape.h"

namespace trireme {

// A memory order that only the backend which made it understands; of elements, whatever their type.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  virtual int64_t elements() const = 0;  // in memory, padding included
  virtual bool equals(const OpaqueLayout& other) const = 0;
  virtual std::string name() const = 0;  // for people, e.g. "nChw16c"
};

class Layout {
 public:
  enum class Kind {
    kAny,           // not chosen yet: the plan chooses
    kRowMajor,      // last extent contiguous
    kChannelsLast,  // [N, C, H, W] stored as N, H, W, C
    kBlocked,       // opaque
  };

  Layout(Kind kind = Kind::kRowMajor) : kind_(kind) {}  // NOLINT(google-explicit-constructor)
  explicit Layout(std::shared_ptr<const OpaqueLayout> opaque)
      : kind_(Kind::kBlocked), opaque_(std::move(opaque)) {}

  static Layout any() { return Kind::kAny; }
  static Layout row_major() { return Kind::kRowMajor; }
  static Layout channels_last() { return Kind::kChannelsLast; }

  Kind kind() const { return kind_; }
  bool is_any() const { return kind_ == Kind::kAny; }
  const OpaqueLayout* opaque() const { return opaque_.get(); }

  bool operator==(const Layout& other) const {
    if (kind_ != other.kind_) return false;
    return kind_ != Kind::kBlocked || opaque_->equals(*other.opaque_);
  }
  std::string to_string() const;

 private:
  Kind kind_;
  std::shared_ptr<const OpaqueLayout> opaque_;
};

struct TensorSpec {
  DType dtype = DType::kF32;
  Shape shape;
  Layout layout;

  // Bytes in memory, padding of blocked layouts included. The layout must have been chosen.
  size_t bytes() const {
    const int64_t elements = layout.opaque() ? layout.opaque()->elements() : shape.elements();
    return elements * size_of(dtype);
  }
  TensorSpec with(Layout other) const { return {dtype, shape, std::move(other)}; }
  bool operator==(const TensorSpec&) const = default;
  // "f32 [64, 16, 14, 14] nChw16c"
  std::string to_string() const;
};

}  // namespace trireme
