// TensorSpec describes a tensor, Layout the order of its elements in memory. The data itself is
// passed as a plain pointer whose spec was fixed when the operation was planned.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "core/dtype.h"
#include "core/shape.h"

namespace trireme {

// A memory layout that only the backend that created it understands. It orders elements,
// independent of their type.
class OpaqueLayout {
 public:
  virtual ~OpaqueLayout() = default;
  virtual int64_t elements() const = 0;  // number in memory, including padding
  virtual bool equals(const OpaqueLayout& other) const = 0;
  virtual std::string name() const = 0;  // human-readable, e.g. "nChw16c"
};

class Layout {
 public:
  enum class Kind {
    kAny,           // not chosen yet; the plan chooses it
    kRowMajor,      // last dimension contiguous
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

  // Returns the size in memory in bytes, including the padding of blocked layouts. Requires that
  // the layout has been chosen.
  size_t bytes() const {
    const int64_t elements = layout.opaque() ? layout.opaque()->elements() : shape.elements();
    return elements * size_of(dtype);
  }
  TensorSpec with(Layout other) const { return {dtype, shape, std::move(other)}; }
  bool operator==(const TensorSpec&) const = default;
  // Returns e.g. "f32 [64, 16, 14, 14] nChw16c".
  std::string to_string() const;
};

}  // namespace trireme
