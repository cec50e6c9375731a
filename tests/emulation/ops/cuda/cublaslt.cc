// A fake of cuBLASLt with plain loops.
#include "ops/cuda/cublaslt.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/cuda/cuda.h"
#include "emulation.h"
#include "ops/cuda/values.h"

namespace trireme::ops::cuda {
namespace {

class Loops final : public Algorithm {
 public:
  explicit Loops(const MatrixProduct& product) : product_(product) {}

  size_t workspace_bytes() const override { return 0; }

  void run(Stream& stream, Args args, void*) const override {
    for (const void* arg : args) require_aligned(arg, kTensorAlignment);
    trireme::cuda::check(
        emulation::enqueue(
            trireme::cuda::handle(stream), "matrix product",
            [p = product_, a = args[0], b = args[1], c = args[2], bias = args[3],
             aux = args.size() > 4 ? args[4] : nullptr] { multiply(p, a, b, c, bias, aux); }),
        "matrix product");
  }

 private:
  static double gelu_tanh(double z) {
    return std::tanh(std::sqrt(2 / std::numbers::pi) * (z + 0.044715 * z * z * z));
  }
  static double gelu_slope(double z) {
    const double t = gelu_tanh(z);
    const double slope = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * z * z);
    return 0.5 * (1 + t) + 0.5 * z * (1 - t * t) * slope;
  }

  static void apply(const MatrixProduct& p, Values& c, void* aux_memory) {
    if (p.epilogue == ProductEpilogue::kGeluStoring) write(c, p.out, aux_memory);
    if (p.epilogue == ProductEpilogue::kGeluGradient) {
      const Values aux = read(aux_memory, p.out, p.rows * p.columns);
      for (size_t i = 0; i < c.size(); ++i) c[i] *= gelu_slope(aux[i]);
      return;
    }
    if (p.epilogue == ProductEpilogue::kNone) return;
    const bool relu = p.epilogue == ProductEpilogue::kRelu;
    for (double& value : c) {
      value = relu ? std::max(value, 0.0) : 0.5 * value * (1 + gelu_tanh(value));
    }
  }

  static void multiply(const MatrixProduct& p, const void* a_memory, const void* b_memory,
                       void* c_memory, const void* bias_memory, void* aux_memory) {
    const Values a = read(a_memory, p.in, p.rows * p.inner);
    const Values b = read(b_memory, p.in, p.inner * p.columns);
    const Values bias = p.bias ? read(bias_memory, p.out, p.columns) : Values{};
    const Values before = p.accumulate ? read(c_memory, p.out, p.rows * p.columns) : Values{};
    Values c;
    for (int64_t row = 0; row < p.rows; ++row) {
      for (int64_t column = 0; column < p.columns; ++column) {
        double sum = p.bias ? bias[static_cast<size_t>(column)] : 0;
        if (p.accumulate) sum += before[c.size()];
        for (int64_t i = 0; i < p.inner; ++i) {
          sum += a[p.a_transposed ? i * p.rows + row : row * p.inner + i] *
                 b[p.b_transposed ? column * p.inner + i : i * p.columns + column];
        }
        c.push_back(sum);
      }
    }
    apply(p, c, aux_memory);
    write(c, p.out, c_memory);
  }

  MatrixProduct product_;
};

}  // namespace

AlgorithmPtr find_product(const Context&, const MatrixProduct& product) {
  if (product.uses_aux() && product.columns % 8 != 0) {
    throw Unsupported("cuBLASLt would not support this epilogue");
  }
  return std::make_shared<Loops>(product);
}

}  // namespace trireme::ops::cuda
