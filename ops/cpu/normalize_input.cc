#include <array>

#include "core/parallel.h"
#include "ops/cpu/plans.h"
#include "ops/cpu/simd.h"
#include "ops/elementwise.h"
#include "ops/function_op.h"

namespace trireme::ops::cpu {
namespace {

// y = x * factor + offset, with a distance of x_step and y_step elements.
template <class X, class Y>
TRIREME_VECTORIZED void scale_run(const X* x, int64_t x_step, Y* y, int64_t y_step, int64_t count,
                                  float factor, float offset) {
  if (x_step == 1 && y_step == 1) {
    for (int64_t i = 0; i < count; ++i) {
      y[i] = from_float<Y>(static_cast<float>(x[i]) * factor + offset);
    }
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    y[i * y_step] = from_float<Y>(static_cast<float>(x[i * x_step]) * factor + offset);
  }
}

// Splits pixels of three interleaved channels into three planes.
template <class X, class Y>
TRIREME_VECTORIZED void scale_to_planes(const X* __restrict x, int64_t positions,
                                        const std::array<float, 3>& factor,
                                        const std::array<float, 3>& offset, Y* __restrict y0,
                                        Y* __restrict y1, Y* __restrict y2) {
  for (int64_t i = 0; i < positions; ++i) {
    y0[i] = from_float<Y>(static_cast<float>(x[3 * i]) * factor[0] + offset[0]);
    y1[i] = from_float<Y>(static_cast<float>(x[3 * i + 1]) * factor[1] + offset[1]);
    y2[i] = from_float<Y>(static_cast<float>(x[3 * i + 2]) * factor[2] + offset[2]);
  }
}

// Distances between channels and between positions of a row.
struct Steps {
  int64_t channel, position;
};

struct Scaling {
  int64_t rows, channels, positions;
  Steps x, y;
  std::vector<float> factor, offset;  // per channel, or one for all
};

// Images of bytes are stored channels-last, and a first convolution with three channels prefers
// planes.
bool pixels_to_planes(const Scaling& s) {
  return s.channels == 3 && s.x.channel == 1 && s.y.position == 1;
}

std::array<float, 3> of_three(const std::vector<float>& values) {
  const bool same = values.size() == 1;
  return {values[0], values[same ? 0 : 1], values[same ? 0 : 2]};
}

template <class X, class Y>
void scale(const Scaling& s, const X* x, Y* y) {
  parallel_for(s.rows, [&](int64_t begin, int64_t end) {
    const int64_t row_elements = s.channels * s.positions;
    for (int64_t n = begin; n < end; ++n) {
      const X* from = x + n * row_elements;
      Y* to = y + n * row_elements;
      if (s.factor.size() == 1 && s.x.position == s.y.position) {
        scale_run(from, 1, to, 1, row_elements, s.factor[0], s.offset[0]);
        continue;
      }
      if (pixels_to_planes(s)) {
        scale_to_planes(from, s.positions, of_three(s.factor), of_three(s.offset), to,
                        to + s.positions, to + 2 * s.positions);
        continue;
      }
      for (int64_t c = 0; c < s.channels; ++c) {
        const size_t k = s.factor.size() == 1 ? 0 : static_cast<size_t>(c);
        scale_run(from + c * s.x.channel, s.x.position, to + c * s.y.channel, s.y.position,
                  s.positions, s.factor[k], s.offset[k]);
      }
    }
  });
}

Steps steps_of(const TensorSpec& spec, int64_t channels, int64_t positions) {
  return spec.layout == Layout::channels_last() ? Steps{1, channels} : Steps{positions, 1};
}

// Returns the layout that a first convolution prefers: row-major for few channels, otherwise
// channels-last.
Layout preferred(const TensorSpec& y) {
  return y.shape.rank() == 4 && y.shape[1] > 3 ? Layout::channels_last() : Layout::row_major();
}

}  // namespace

Plan plan(const NormalizeInput& op, const EnginePtr&, Specs given) {
  using Op = NormalizeInput;
  std::vector<TensorSpec> specs(given.begin(), given.end());
  TensorSpec& x = specs[Op::kX];
  TensorSpec& y = specs[Op::kY];
  if (x.layout.is_any() || x.layout.opaque()) x.layout = Layout::row_major();
  if (y.layout.is_any() || y.layout.opaque()) y.layout = preferred(y);
  Scaling scaling{.rows = x.shape[0],
                  .channels = x.shape.rank() > 1 ? x.shape[1] : 1,
                  .positions = 1,
                  .x = {},
                  .y = {},
                  .factor = {},
                  .offset = {}};
  for (int i = 2; i < x.shape.rank(); ++i) scaling.positions *= x.shape[i];
  scaling.x = steps_of(x, scaling.channels, scaling.positions);
  scaling.y = steps_of(y, scaling.channels, scaling.positions);
  const size_t count = std::max(op.mean.size(), op.stddev.size());
  for (size_t c = 0; c < count; ++c) {
    const double stddev = op.stddev[op.stddev.size() == 1 ? 0 : c];
    scaling.factor.push_back(static_cast<float>(op.scale / stddev));
    scaling.offset.push_back(static_cast<float>(-op.mean[op.mean.size() == 1 ? 0 : c] / stddev));
  }
  return with_element(y.dtype, [&]<class Y>(Y) -> Plan {
    if (x.dtype == DType::kU8) {
      return host_op(std::move(specs), [scaling](Args args, void*) {
        scale(scaling, pointer<const uint8_t>(args, Op::kX), pointer<Y>(args, Op::kY));
      });
    }
    if (x.dtype == DType::kF32) {
      return host_op(std::move(specs), [scaling](Args args, void*) {
        scale(scaling, pointer<const float>(args, Op::kX), pointer<Y>(args, Op::kY));
      });
    }
    throw Error("inputs must be u8 or f32, got " + std::string(name_of(x.dtype)));
  });
}

}  // namespace trireme::ops::cpu
