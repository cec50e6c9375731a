// Matrix products with cuBLASLt.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cuda/library.h"
#include "core/dtype.h"
#include "ops/cuda/algorithm.h"
#include "ops/cuda/context.h"

namespace trireme::ops::cuda {

// The cuBLASLt library and a handle for the current device.
class CublasLt {
 public:
  explicit CublasLt(std::shared_ptr<const trireme::cuda::Library> library);
  CublasLt(const CublasLt&) = delete;
  CublasLt& operator=(const CublasLt&) = delete;
  ~CublasLt();

  std::string name() const;  // e.g. "cuBLASLt 13.1.0"

  struct Calls;  // the functions of the library
  const Calls& calls() const { return *calls_; }

 private:
  std::unique_ptr<Calls> calls_;
};

// What is done with the product, before it is stored. `aux` has the shape and dtype of c.
enum class ProductEpilogue {
  kNone,
  kRelu,
  kGelu,          // the tanh approximation
  kGeluStoring,   // likewise; its argument is written to aux
  kGeluGradient,  // multiplies by the derivative of kGelu at aux; without a bias
};

// c [rows, columns] = a [rows, inner] * b [inner, columns], all row-major. Arguments of its
// algorithms: a, b, c, bias, aux.
struct MatrixProduct {
  int64_t rows = 0, columns = 0, inner = 0;
  bool a_transposed = false;  // a is stored as [inner, rows]
  bool b_transposed = false;  // b is stored as [columns, inner]
  DType in = DType::kF32;     // dtype of a and b
  DType out = DType::kF32;    // dtype of c and the bias
  bool bias = false;          // [columns], added to each row
  bool tf32 = false;          // f32 may be rounded to TF32
  bool accumulate = false;    // the product is added to c
  ProductEpilogue epilogue = ProductEpilogue::kNone;

  bool uses_aux() const {
    return epilogue == ProductEpilogue::kGeluStoring || epilogue == ProductEpilogue::kGeluGradient;
  }
};

// Returns an algorithm that is deterministic and accumulates in f32. Throws Unsupported if there is
// none.
AlgorithmPtr find_product(const Context& context, const MatrixProduct& product);

}  // namespace trireme::ops::cuda
