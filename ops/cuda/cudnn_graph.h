// What descriptions of operations to cuDNN have in common. Only for the files that call cuDNN,
// since cudnn-frontend is large.
#pragma once

// We load the library ourselves, and plans outlive the recordings of their work.
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#include <cudnn_frontend.h>

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "ops/cuda/cudnn.h"

namespace trireme::ops::cuda {

namespace fe = cudnn_frontend;
using CudnnTensor = std::shared_ptr<fe::graph::Tensor_attributes>;
using CudnnGraph = std::shared_ptr<fe::graph::Graph>;

// Throws DeviceError with the name of the call.
void check_cudnn(fe::error_t error, const char* call);
// Throws Unsupported if cuDNN does not support a graph.
void require_cudnn(fe::error_t error);
// Throws Unsupported for other dtypes than f32, f16 and bf16.
fe::DataType_t to_cudnn(DType dtype);
// Returns an empty graph that computes in f32 on the device of the handle.
CudnnGraph create_cudnn_graph(const Cudnn& cudnn);

// An engine with its settings: an execution plan of a graph, which the engines of the graph share.
class CudnnEngine {
 public:
  CudnnEngine(std::shared_ptr<Cudnn> cudnn, CudnnGraph graph, int64_t index);

  size_t workspace_bytes() const { return workspace_bytes_; }
  // Queues the work. `tensors` are those of the graph, in the order of their unique IDs.
  void run(Stream& stream, std::span<void*> tensors, void* workspace) const;

 private:
  std::shared_ptr<Cudnn> cudnn_;
  CudnnGraph graph_;
  int64_t index_;
  size_t workspace_bytes_;
};

// Returns the engines of a described graph, best first according to cuDNN's heuristic, as
// candidates that create(engine) builds. Engines with one of the notes are left out. Throws
// Unsupported if cuDNN does not support the graph.
std::vector<Candidate> list_engines(const std::shared_ptr<Cudnn>& cudnn, const CudnnGraph& graph,
                                    const std::vector<fe::NumericalNote_t>& forbidden,
                                    const std::function<AlgorithmPtr(CudnnEngine)>& create);

}  // namespace trireme::ops::cuda
