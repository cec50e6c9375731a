// A fake of cuBLASLt with plain loops.
#include "ops/cuda/cublaslt.h"

#include <algorithm>

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
    trireme::cuda::check(emulation::enqueue(trireme::cuda::handle(stream), "matrix product",
                                            [p = product_, a = args[0], b = args[1], c = args[2],
                                             bias = args[3]] { multiply(p, a, b, c, bias); }),
                         "matrix product");
  }

 private:
  static void multiply(const MatrixProduct& p, const void* a_memory, const void* b_memory,
                       void* c_memory, const void* bias_memory) {
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
        c.push_back(p.relu ? std::max(sum, 0.0) : sum);
      }
    }
    write(c, p.out, c_memory);
  }

  MatrixProduct product_;
};

}  // namespace

AlgorithmPtr find_product(const Context&, const MatrixProduct& product) {
  return std::make_shared<Loops>(product);
}

}  // namespace trireme::ops::cuda
