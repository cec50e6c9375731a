#include <algorithm>

#include "core/random.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

// y = keep ? x / (1 - rate) : 0, the same forward and backward.
void drop(const Shape& shape, float rate, uint64_t layer, const StepState& state, const double* x,
          double* y) {
  const Random random(state.seed, RandomPurpose::kDropout,
                      mix64(layer) + static_cast<uint64_t>(state.step));
  const int64_t rows = shape[0], channels = shape.rank() > 1 ? shape[1] : 1;
  const int64_t per_row = shape.elements() / std::max<int64_t>(1, rows);
  const int64_t places = per_row / channels;
  for (int64_t n = 0; n < rows; ++n)
    for (int64_t c = 0; c < channels; ++c)
      for (int64_t p = 0; p < places; ++p) {
        const int64_t i = (n * channels + c) * places + p;
        const int64_t index = state.place_of(n) * per_row + p * channels + c;
        const bool keep = random.uniform_at(static_cast<uint64_t>(index)) >= rate;
        y[i] = keep ? x[i] / (1 - double{rate}) : 0;
      }
}

}  // namespace

Plan plan(const DropoutForward& op, Specs specs) {
  using O = DropoutForward;
  const Shape shape = specs[O::kX].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    drop(shape, op.rate, op.layer, state(args, O::kState), in(args, O::kX), out(args, O::kY));
  });
}

Plan plan(const DropoutBackward& op, Specs specs) {
  using O = DropoutBackward;
  const Shape shape = specs[O::kDy].shape;
  return host_op(std::move(specs), [=](Args args, void*) {
    drop(shape, op.rate, op.layer, state(args, O::kState), in(args, O::kDy), out(args, O::kDx));
  });
}

}  // namespace trireme::ops::reference
