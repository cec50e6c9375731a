#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/error.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

double load(const void* data, DType dtype, int64_t i) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[i];
    case DType::kF64:
      return static_cast<const double*>(data)[i];
    case DType::kI32:
      return static_cast<const int32_t*>(data)[i];
    case DType::kU8:
      return static_cast<const uint8_t*>(data)[i];
    default:
      throw Error(fmt::format("the reference does not read {}", name_of(dtype)));
  }
}

// Rounds to the nearest representable integer.
template <class T>
T whole(double value) {
  return static_cast<T>(std::clamp<double>(std::nearbyint(value), std::numeric_limits<T>::min(),
                                           std::numeric_limits<T>::max()));
}

void store(void* data, DType dtype, int64_t i, double value) {
  switch (dtype) {
    case DType::kF32:
      static_cast<float*>(data)[i] = static_cast<float>(value);
      return;
    case DType::kF64:
      static_cast<double*>(data)[i] = value;
      return;
    case DType::kI32:
      static_cast<int32_t*>(data)[i] = whole<int32_t>(value);
      return;
    case DType::kU8:
      static_cast<uint8_t*>(data)[i] = whole<uint8_t>(value);
      return;
    default:
      throw Error(fmt::format("the reference does not write {}", name_of(dtype)));
  }
}

// Returns the offset of row-major element i.
int64_t place(const TensorSpec& spec, int64_t i) {
  if (spec.layout.kind() != Layout::Kind::kChannelsLast) return i;
  const Shape& s = spec.shape;
  const int64_t places = s.elements() / (s[0] * s[1]);
  const int64_t n = i / (s[1] * places), c = i / places % s[1], p = i % places;
  return (n * places + p) * s[1] + c;
}

// Copies between a whole and its parts along axis 1.
template <class Copy>
void each_joined(const std::vector<Shape>& parts, Copy copy) {
  const int64_t rows = parts[0][0];
  int64_t whole = 0;
  for (int64_t n = 0; n < rows; ++n) {
    for (size_t p = 0; p < parts.size(); ++p) {
      const int64_t size = parts[p].elements() / rows;
      for (int64_t i = 0; i < size; ++i) copy(p, n * size + i, whole++);
    }
  }
}

}  // namespace

Plan plan(const Add&, Specs specs) {
  const int64_t count = specs[Add::kY].shape.elements();
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t i = 0; i < count; ++i) {
      out(args, Add::kY)[i] = in(args, Add::kA)[i] + in(args, Add::kB)[i];
    }
  });
}

Plan plan(const Concat&, Specs specs) {
  std::vector<Shape> parts;
  for (size_t i = Concat::kFirstInput; i < specs.size(); ++i) parts.push_back(specs[i].shape);
  return host_op(std::move(specs), [parts](Args args, void*) {
    each_joined(parts, [&](size_t p, int64_t part, int64_t whole) {
      out(args, Concat::kY)[whole] = in(args, Concat::kFirstInput + static_cast<int>(p))[part];
    });
  });
}

Plan plan(const Split&, Specs specs) {
  std::vector<Shape> parts;
  for (size_t i = Split::kFirstOutput; i < specs.size(); ++i) parts.push_back(specs[i].shape);
  return host_op(std::move(specs), [parts](Args args, void*) {
    each_joined(parts, [&](size_t p, int64_t part, int64_t whole) {
      out(args, Split::kFirstOutput + static_cast<int>(p))[part] = in(args, Split::kX)[whole];
    });
  });
}

Plan plan(const Reorder&, Specs specs) {
  const TensorSpec from = specs[Reorder::kFrom], to = specs[Reorder::kTo];
  return host_op(std::move(specs), [=](Args args, void*) {
    for (int64_t i = 0; i < from.shape.elements(); ++i) {
      store(args[Reorder::kTo], to.dtype, place(to, i),
            load(args[Reorder::kFrom], from.dtype, place(from, i)));
    }
  });
}

Plan plan(const NormalizeInput& op, Specs specs) {
  using O = NormalizeInput;
  const TensorSpec x = specs[O::kX];
  return host_op(std::move(specs), [=](Args args, void*) {
    const int64_t places = x.shape.elements() / (x.shape[0] * x.shape[1]);
    for (int64_t i = 0; i < x.shape.elements(); ++i) {
      const auto c = static_cast<size_t>(i / places % x.shape[1]);
      const double mean = op.mean.size() == 1 ? op.mean[0] : op.mean[c];
      const double deviation = op.stddev.size() == 1 ? op.stddev[0] : op.stddev[c];
      out(args, O::kY)[i] = (load(args[O::kX], x.dtype, place(x, i)) * op.scale - mean) / deviation;
    }
  });
}

}  // namespace trireme::ops::reference
