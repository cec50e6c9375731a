#include "core/tensor.h"

namespace trireme {

std::string Layout::to_string() const {
  switch (kind_) {
    case Kind::kAny:
      return "any";
    case Kind::kRowMajor:
      return "row-major";
    case Kind::kChannelsLast:
      return "channels-last";
    case Kind::kBlocked:
      return opaque_->name();
  }
  return "?";
}

std::string TensorSpec::to_string() const {
  return std::string(name_of(dtype)) + " " + shape.to_string() + " " + layout.to_string();
}

}  // namespace trireme
