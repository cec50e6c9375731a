#include "ops/op_info.h"

#include <fmt/format.h>

#include "core/error.h"
#include "ops/op.h"

namespace trireme::ops {

bool Checker::present(int arg) const { return !is_absent(specs_[arg]); }

std::string Checker::name(int arg) const {
  const auto i = static_cast<size_t>(arg);
  const size_t last = info_.args.size() - 1;
  if (!info_.variadic || i < last) return info_.arg(i).name;
  return fmt::format("{} {}", info_.arg(i).name, i - last);
}

void Checker::count(size_t wanted) const {
  if (specs_.size() != wanted) {
    refuse(fmt::format("takes {} tensors, got {}", wanted, specs_.size()));
  }
}

void Checker::none_missing() const {
  for (size_t i = 0; i < specs_.size(); ++i) {
    if (!info_.arg(i).optional && specs_[i] == absent()) {
      refuse(fmt::format("{} is missing", name(static_cast<int>(i))));
    }
  }
}

void Checker::rank(int arg, int wanted) const {
  if (shape(arg).rank() != wanted) {
    refuse(fmt::format("{} must have {} dimensions, got {}", name(arg), wanted,
                       shape(arg).to_string()));
  }
}

int64_t Checker::channels(int arg) const {
  if (shape(arg).rank() < 2) {
    refuse(fmt::format("{} must be [N, C, ...], got {}", name(arg), shape(arg).to_string()));
  }
  return shape(arg)[1];
}

void Checker::is(int arg, const Shape& wanted) const {
  if (present(arg) || !info_.arg(static_cast<size_t>(arg)).optional) needs(arg, wanted);
}

void Checker::needs(int arg, const Shape& wanted) const {
  if (!(shape(arg) == wanted)) {
    refuse(fmt::format("{} must be {}, got {}", name(arg), wanted.to_string(),
                       shape(arg).to_string()));
  }
}

void Checker::is_i32(int arg, const Shape& wanted) const {
  is(arg, wanted);
  if (present(arg) && dtype(arg) != DType::kI32) {
    refuse(fmt::format("{} must be i32, got {}", name(arg), name_of(dtype(arg))));
  }
}

void Checker::at_least(int64_t min, std::span<const int64_t> values, const char* what) const {
  for (int64_t value : values) {
    if (value < min) refuse(fmt::format("{} must be at least {}, got {}", what, min, value));
  }
}

void Checker::refuse(const std::string& why) const {
  throw Error(fmt::format("{}: {}", info_.name, why));
}

}  // namespace trireme::ops
