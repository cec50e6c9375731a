#include "ops/cuda/cublaslt.h"

#include <cublasLt.h>
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <initializer_list>
#include <utility>

#include "core/cuda/cuda.h"
#include "ops/cuda/libraries.h"

namespace trireme::ops::cuda {
namespace {

// A function of a library, convertible to the function pointer that it is assigned to.
struct Symbol {
  const trireme::cuda::Library& library;
  const char* name;
  template <class Function>
  operator Function*() const {  // NOLINT(google-explicit-constructor)
    return library.function<Function>(name);
  }
};

}  // namespace

struct CublasLt::Calls {
  explicit Calls(std::shared_ptr<const trireme::cuda::Library> opened)
      : library(std::move(opened)) {}

  std::shared_ptr<const trireme::cuda::Library> library;
  cublasLtHandle_t handle = nullptr;

  decltype(cublasLtGetVersion)* version = find("cublasLtGetVersion");
  decltype(cublasLtGetStatusName)* status_name = find("cublasLtGetStatusName");
  decltype(cublasLtCreate)* create = find("cublasLtCreate");
  decltype(cublasLtDestroy)* destroy = find("cublasLtDestroy");
  decltype(cublasLtMatmulDescCreate)* create_desc = find("cublasLtMatmulDescCreate");
  decltype(cublasLtMatmulDescDestroy)* destroy_desc = find("cublasLtMatmulDescDestroy");
  decltype(cublasLtMatmulDescSetAttribute)* set_desc = find("cublasLtMatmulDescSetAttribute");
  decltype(cublasLtMatrixLayoutCreate)* create_layout = find("cublasLtMatrixLayoutCreate");
  decltype(cublasLtMatrixLayoutDestroy)* destroy_layout = find("cublasLtMatrixLayoutDestroy");
  decltype(cublasLtMatmulPreferenceCreate)* create_preference =
      find("cublasLtMatmulPreferenceCreate");
  decltype(cublasLtMatmulPreferenceDestroy)* destroy_preference =
      find("cublasLtMatmulPreferenceDestroy");
  decltype(cublasLtMatmulPreferenceSetAttribute)* set_preference =
      find("cublasLtMatmulPreferenceSetAttribute");
  decltype(cublasLtMatmulAlgoGetHeuristic)* list = find("cublasLtMatmulAlgoGetHeuristic");
  decltype(cublasLtMatmulAlgoConfigGetAttribute)* get_config =
      find("cublasLtMatmulAlgoConfigGetAttribute");
  decltype(cublasLtMatmul)* multiply = find("cublasLtMatmul");

  void check(cublasStatus_t status, const char* call) const {
    if (status != CUBLAS_STATUS_SUCCESS) throw DeviceError(call, status_name(status));
  }

 private:
  Symbol find(const char* name) const { return {*library, name}; }
};

namespace {

// Minimum alignment of all tensors in bytes. 16-bit parameters are aligned to 32 bytes, other
// tensors to more. No algorithm benefits from an alignment above 16.
constexpr uint32_t kAlignment = 16;
constexpr int kMaxAlgorithms = 8;

using Desc = std::unique_ptr<cublasLtMatmulDescOpaque_t, decltype(cublasLtMatmulDescDestroy)*>;
using MatrixLayout =
    std::unique_ptr<cublasLtMatrixLayoutOpaque_t, decltype(cublasLtMatrixLayoutDestroy)*>;
using Preference =
    std::unique_ptr<cublasLtMatmulPreferenceOpaque_t, decltype(cublasLtMatmulPreferenceDestroy)*>;

cudaDataType to_cublas(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return CUDA_R_32F;
    case DType::kF16:
      return CUDA_R_16F;
    case DType::kBF16:
      return CUDA_R_16BF;
    default:
      throw Unsupported(fmt::format("cuBLASLt does not support {}", name_of(dtype)));
  }
}

constexpr int64_t kAuxMultiple = 8;  // of the columns of aux

cublasLtEpilogue_t epilogue(const MatrixProduct& p) {
  switch (p.epilogue) {
    case ProductEpilogue::kNone:
      return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
    case ProductEpilogue::kRelu:
      return p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
    case ProductEpilogue::kGelu:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    case ProductEpilogue::kGeluStoring:
      return p.bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    case ProductEpilogue::kGeluGradient:
      return CUBLASLT_EPILOGUE_DGELU;
  }
  throw Error("cuBLASLt has no such epilogue");
}

// cuBLASLt is column-major: it sees every matrix transposed and computes c^T = b^T a^T. Its A is
// our b, and its bias, one value per row, is our bias.
class Descriptors {
 public:
  Descriptors(const CublasLt& library, const MatrixProduct& p)
      : calls_(library.calls()),
        desc_(create(p)),
        a_(layout(p.in, p.a_transposed ? p.rows : p.inner, p.a_transposed ? p.inner : p.rows)),
        b_(layout(p.in, p.b_transposed ? p.inner : p.columns,
                  p.b_transposed ? p.columns : p.inner)),
        c_(layout(p.out, p.columns, p.rows)),
        accumulate_(p.accumulate) {
    set(CUBLASLT_MATMUL_DESC_TRANSA, p.b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_TRANSB, p.a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue(p));
    // The heuristic reads the alignment of these pointers.
    void* const aligned = reinterpret_cast<void*>(uintptr_t{kAlignment});
    if (p.bias) set_bias(aligned);
    if (!p.uses_aux()) return;
    if (p.columns % kAuxMultiple != 0) {
      throw Unsupported(fmt::format("cuBLASLt's epilogue needs a multiple of {} columns, not {}",
                                    kAuxMultiple, p.columns));
    }
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, p.columns);
    set_aux(aligned);
  }

  void set_bias(void* bias) const { set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias); }
  void set_aux(void* aux) const { set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, aux); }

  std::vector<cublasLtMatmulHeuristicResult_t> list() const {
    const Preference preference = create_preference();
    std::vector<cublasLtMatmulHeuristicResult_t> results(kMaxAlgorithms);
    int found = 0;
    const cublasStatus_t status =
        calls_.list(calls_.handle, desc_.get(), b_.get(), a_.get(), c_.get(), c_.get(),
                    preference.get(), kMaxAlgorithms, results.data(), &found);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED)
      calls_.check(status, "cublasLtMatmulAlgoGetHeuristic");
    results.resize(static_cast<size_t>(found));
    return results;
  }

  void multiply(Stream& stream, void* a, void* b, void* c, const cublasLtMatmulAlgo_t& algorithm,
                void* workspace, size_t workspace_bytes) const {
    const float one = 1, beta = accumulate_ ? 1 : 0;
    calls_.check(calls_.multiply(calls_.handle, desc_.get(), &one, b, b_.get(), a, a_.get(), &beta,
                                 c, c_.get(), c, c_.get(), &algorithm, workspace, workspace_bytes,
                                 trireme::cuda::handle(stream)),
                 "cublasLtMatmul");
  }

 private:
  Desc create(const MatrixProduct& p) const {
    cublasLtMatmulDesc_t desc = nullptr;
    calls_.check(calls_.create_desc(&desc,
                                    p.tf32 && p.in == DType::kF32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                                  : CUBLAS_COMPUTE_32F,
                                    CUDA_R_32F),
                 "cublasLtMatmulDescCreate");
    return {desc, calls_.destroy_desc};
  }

  MatrixLayout layout(DType dtype, int64_t rows, int64_t columns) const {
    cublasLtMatrixLayout_t created = nullptr;
    calls_.check(calls_.create_layout(&created, to_cublas(dtype), static_cast<uint64_t>(rows),
                                      static_cast<uint64_t>(columns), rows),
                 "cublasLtMatrixLayoutCreate");
    return {created, calls_.destroy_layout};
  }

  // Returns preferences that keep partial sums in f32.
  Preference create_preference() const {
    cublasLtMatmulPreference_t created = nullptr;
    calls_.check(calls_.create_preference(&created), "cublasLtMatmulPreferenceCreate");
    Preference preference(created, calls_.destroy_preference);
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, auto value) {
      calls_.check(calls_.set_preference(created, what, &value, sizeof(value)),
                   "cublasLtMatmulPreferenceSetAttribute");
    };
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t{kWorkspaceLimit});
    prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE});
    for (auto which :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      prefer(which, kAlignment);
    }
    return preference;
  }

  template <class Value>
  void set(cublasLtMatmulDescAttributes_t what, Value value) const {
    calls_.check(calls_.set_desc(desc_.get(), what, &value, sizeof(value)),
                 "cublasLtMatmulDescSetAttribute");
  }

  const CublasLt::Calls& calls_;
  Desc desc_;
  MatrixLayout a_, b_, c_;
  bool accumulate_;
};

class Product final : public Algorithm {
 public:
  Product(std::shared_ptr<CublasLt> library, std::shared_ptr<const Descriptors> descriptors,
          const cublasLtMatmulHeuristicResult_t& result, const MatrixProduct& product)
      : library_(std::move(library)),
        descriptors_(std::move(descriptors)),
        algorithm_(result.algo),
        workspace_bytes_(result.workspaceSize),
        bias_(product.bias),
        aux_(product.uses_aux()) {}

  size_t workspace_bytes() const override { return workspace_bytes_; }

  void run(Stream& stream, Args args, void* workspace) const override {
    if (bias_) descriptors_->set_bias(args[kBias]);
    if (aux_) descriptors_->set_aux(args[kAux]);
    descriptors_->multiply(stream, args[kA], args[kB], args[kC], algorithm_, workspace,
                           workspace_bytes_);
  }

 private:
  enum { kA, kB, kC, kBias, kAux };

  std::shared_ptr<CublasLt> library_;
  std::shared_ptr<const Descriptors> descriptors_;
  cublasLtMatmulAlgo_t algorithm_;
  size_t workspace_bytes_;
  bool bias_, aux_;
};

// Names an algorithm by its place in the library's list, which is the same in all processes, and by
// its settings. The settings alone may not tell two algorithms apart, and the bytes of an algorithm
// are not all initialized.
std::string name_of(const CublasLt::Calls& calls, const cublasLtMatmulAlgo_t& algorithm,
                    size_t place) {
  std::string name = fmt::format("{}:", place);
  for (const auto& [attribute, bytes] :
       std::initializer_list<std::pair<cublasLtMatmulAlgoConfigAttributes_t, size_t>>{
           {CUBLASLT_ALGO_CONFIG_ID, sizeof(int32_t)},
           {CUBLASLT_ALGO_CONFIG_TILE_ID, sizeof(uint32_t)},
           {CUBLASLT_ALGO_CONFIG_SPLITK_NUM, sizeof(int32_t)},
           {CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, sizeof(uint32_t)},
           {CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, sizeof(uint32_t)},
           {CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, sizeof(uint32_t)},
           {CUBLASLT_ALGO_CONFIG_STAGES_ID, sizeof(uint32_t)},
           {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, sizeof(uint16_t)},
           {CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, sizeof(uint16_t)}}) {
    uint32_t value = 0;
    size_t written = 0;
    calls.check(calls.get_config(&algorithm, attribute, &value, bytes, &written),
                "cublasLtMatmulAlgoConfigGetAttribute");
    name += fmt::format(" {}", value);
  }
  return name;
}

std::vector<Candidate> list_products(const std::shared_ptr<CublasLt>& library,
                                     const MatrixProduct& product) {
  const auto descriptors = std::make_shared<const Descriptors>(*library, product);
  std::vector<Candidate> list;
  for (const cublasLtMatmulHeuristicResult_t& result : descriptors->list()) {
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    list.push_back({name_of(library->calls(), result.algo, list.size()), [=] {
                      return std::make_shared<const Product>(library, descriptors, result, product);
                    }});
  }
  return list;
}

std::string key(const MatrixProduct& p) {
  constexpr const char* kEpilogues[] = {"", " relu", " gelu", " gelu storing", " gelu gradient"};
  return fmt::format("[{}, {}]{} x [{}, {}]{} {} to {}{}{}{}{}", p.rows, p.inner,
                     p.a_transposed ? "^T" : "", p.inner, p.columns, p.b_transposed ? "^T" : "",
                     trireme::name_of(p.in), trireme::name_of(p.out), p.bias ? " bias" : "",
                     kEpilogues[static_cast<int>(p.epilogue)], p.tf32 ? " tf32" : "",
                     p.accumulate ? " added" : "");
}

std::vector<size_t> bytes(const MatrixProduct& p) {
  const auto size = [](int64_t rows, int64_t columns, DType dtype) {
    return static_cast<size_t>(rows * columns) * size_of(dtype);
  };
  std::vector<size_t> sizes{size(p.rows, p.inner, p.in), size(p.inner, p.columns, p.in),
                            size(p.rows, p.columns, p.out)};
  sizes.push_back(p.bias ? size(1, p.columns, p.out) : 0);
  sizes.push_back(p.uses_aux() ? size(p.rows, p.columns, p.out) : 0);
  return sizes;
}

}  // namespace

CublasLt::CublasLt(std::shared_ptr<const trireme::cuda::Library> library)
    : calls_(std::make_unique<Calls>(std::move(library))) {
  calls_->check(calls_->create(&calls_->handle), "cublasLtCreate");
}

CublasLt::~CublasLt() { calls_->destroy(calls_->handle); }

std::string CublasLt::name() const {
  const size_t version = calls_->version();
  return fmt::format("cuBLASLt {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

AlgorithmPtr find_product(const Context& context, const MatrixProduct& product) {
  Libraries& libraries = *context.libraries;
  return libraries.products.choose(key(product), bytes(product),
                                   [&] { return list_products(libraries.cublaslt, product); });
}

}  // namespace trireme::ops::cuda
