#include "ops/cuda/cudnn.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <set>

#include "core/cuda/cuda.h"
#include "ops/cuda/cudnn_graph.h"
#include "ops/cuda/libraries.h"

namespace cudnn_frontend {
void* cudnn_dlhandle = nullptr;  // where the wrappers of the frontend look up functions
}

namespace trireme::ops::cuda {
namespace {

void check(cudnnStatus_t status, const char* call) {
  if (status == CUDNN_STATUS_SUCCESS) return;
  throw DeviceError(
      call, fmt::format("{} {}", fe::to_string(status), fe::detail::get_last_error_string_()));
}

std::vector<int64_t> to_vector(std::span<const int64_t> values) {
  return {values.begin(), values.end()};
}

// The unique IDs of the four tensors, each [N, C, H, W], in the order of Algorithm::run.
enum Number { kX = 1, kWeight, kY, kBias };

void describe(fe::graph::Tensor_attributes& tensor, Number number, const Shape& shape,
              DType dtype) {
  const auto [channels, height, width] = std::array{shape[1], shape[2], shape[3]};
  tensor.set_uid(number)
      .set_dim(to_vector(shape))
      .set_stride({channels * height * width, 1, channels * width, channels})
      .set_data_type(to_cudnn(dtype));
}

CudnnTensor input(fe::graph::Graph& graph, Number number, const Shape& shape, DType dtype) {
  fe::graph::Tensor_attributes tensor;
  describe(tensor, number, shape, dtype);
  return graph.tensor(tensor);
}

template <class Attributes>
Attributes attributes(const Conv2dGeometry& geometry) {
  return Attributes()
      .set_padding(to_vector(geometry.padding))
      .set_stride(to_vector(geometry.stride))
      .set_dilation(to_vector(geometry.dilation));
}

void describe_forward(fe::graph::Graph& graph, const Convolution& c) {
  using fe::graph::Pointwise_attributes;
  CudnnTensor y =
      graph.conv_fprop(input(graph, kX, c.x, c.in), input(graph, kWeight, c.weight, c.in),
                       attributes<fe::graph::Conv_fprop_attributes>(c.geometry));
  if (c.bias) {
    const CudnnTensor bias = input(graph, kBias, {1, c.y[1], 1, 1}, *c.bias);
    y = graph.pointwise(y, bias, Pointwise_attributes().set_mode(fe::PointwiseMode_t::ADD));
  }
  if (c.relu) {
    y = graph.pointwise(y, Pointwise_attributes().set_mode(fe::PointwiseMode_t::RELU_FWD));
  }
  describe(y->set_output(true), kY, c.y, c.out);
}

void describe_backward_data(fe::graph::Graph& graph, const Convolution& c) {
  const CudnnTensor dx =
      graph.conv_dgrad(input(graph, kY, c.y, c.in), input(graph, kWeight, c.weight, c.in),
                       attributes<fe::graph::Conv_dgrad_attributes>(c.geometry));
  describe(dx->set_output(true), kX, c.x, c.out);
}

void describe_backward_weights(fe::graph::Graph& graph, const Convolution& c) {
  const CudnnTensor dweight =
      graph.conv_wgrad(input(graph, kY, c.y, c.in), input(graph, kX, c.x, c.in),
                       attributes<fe::graph::Conv_wgrad_attributes>(c.geometry));
  describe(dweight->set_output(true), kWeight, c.weight, c.out);
}

CudnnGraph describe(const Cudnn& cudnn, const Convolution& c) {
  CudnnGraph graph = create_cudnn_graph(cudnn);
  switch (c.pass) {
    case ConvolutionPass::kForward:
      describe_forward(*graph, c);
      break;
    case ConvolutionPass::kBackwardData:
      describe_backward_data(*graph, c);
      break;
    case ConvolutionPass::kBackwardWeights:
      describe_backward_weights(*graph, c);
      break;
  }
  check_cudnn(graph->validate(), "describing a convolution to cuDNN");
  return graph;
}

// Returns the numerical properties that engines must not have.
std::vector<fe::NumericalNote_t> forbidden_notes(const Convolution& c) {
  using Note = fe::NumericalNote_t;
  std::vector<Note> notes{Note::NONDETERMINISTIC, Note::REDUCED_PRECISION_REDUCTION, Note::FFT,
                          Note::WINOGRAD_TILE_6x6, Note::WINOGRAD_TILE_13x13};
  if (c.in != DType::kF32) {
    notes.push_back(Note::WINOGRAD);  // its rounding errors are acceptable in f32 only
    return notes;
  }
  notes.push_back(Note::DOWN_CONVERT_INPUTS);
  if (!c.tf32) notes.push_back(Note::TENSOR_CORE);
  return notes;
}

class ConvolutionEngine final : public Algorithm {
 public:
  ConvolutionEngine(CudnnEngine engine, bool bias)
      : engine_(std::move(engine)), tensors_(bias ? kBias : kY) {}

  size_t workspace_bytes() const override { return engine_.workspace_bytes(); }

  void run(Stream& stream, Args args, void* workspace) const override {
    std::array<void*, kBias> tensors;
    std::copy_n(args.begin(), tensors_, tensors.begin());
    engine_.run(stream, std::span(tensors).first(tensors_), workspace);
  }

 private:
  CudnnEngine engine_;
  size_t tensors_;
};

// Makes the frontend use the library. The frontend looks up functions once per process, so the
// library must never be unloaded.
void load_frontend(const trireme::cuda::Library& library) {
  dlopen(library.path().c_str(), RTLD_NOW | RTLD_NODELETE);
  fe::cudnn_dlhandle = library.handle();
  const size_t major = fe::detail::get_backend_version() / 10000;
  if (major != CUDNN_MAJOR) {
    throw DeviceError("loading cuDNN",
                      fmt::format("{} is version {}, but this program needs version {}",
                                  library.path(), major, CUDNN_MAJOR));
  }
}

}  // namespace

Cudnn::Cudnn(std::shared_ptr<const trireme::cuda::Library> library) : library_(std::move(library)) {
  load_frontend(*library_);
  check(fe::detail::create_handle(&handle_), "cudnnCreate");
}

Cudnn::Cudnn(std::shared_ptr<const trireme::cuda::Library> library,
             const std::string& absent_device, int capability)
    : library_(std::move(library)),
      absent_device_(std::make_shared<fe::DeviceProperties>()),
      absent_capability_(capability) {
  load_frontend(*library_);
  check_cudnn(absent_device_->deserialize({absent_device.begin(), absent_device.end()}),
              "describing a device to cuDNN");
}

Cudnn::~Cudnn() {
  if (!handle_) return;
  fe::detail::set_stream(handle_, nullptr);  // the stream used last may have been destroyed
  fe::detail::destroy_handle(handle_);
}

std::string Cudnn::name() const {
  const size_t version = fe::detail::get_backend_version();
  return fmt::format("cuDNN {}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

cudnnContext* Cudnn::handle() const {
  if (handle_) check(fe::detail::set_stream(handle_, nullptr), "cudnnSetStream");
  return handle_;
}

cudnnContext* Cudnn::handle(Stream& stream) const {
  check(fe::detail::set_stream(handle_, trireme::cuda::handle(stream)), "cudnnSetStream");
  return handle_;
}

void check_cudnn(fe::error_t error, const char* call) {
  if (error.is_bad()) throw DeviceError(call, error.get_message());
}

void require_cudnn(fe::error_t error) {
  constexpr size_t kMaxMessage = 300;  // there is one reason per engine
  if (error.is_bad()) throw Unsupported("cuDNN: " + error.get_message().substr(0, kMaxMessage));
}

fe::DataType_t to_cudnn(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return fe::DataType_t::FLOAT;
    case DType::kF16:
      return fe::DataType_t::HALF;
    case DType::kBF16:
      return fe::DataType_t::BFLOAT16;
    default:
      throw Unsupported(fmt::format("cuDNN does not compute with {}", name_of(dtype)));
  }
}

CudnnGraph create_cudnn_graph(const Cudnn& cudnn) {
  auto graph = std::make_shared<fe::graph::Graph>();
  graph->set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
  if (cudnn.absent_device()) {
    graph->set_device_properties(cudnn.absent_device()).set_sm_version(cudnn.absent_capability());
  }
  return graph;
}

CudnnEngine::CudnnEngine(std::shared_ptr<Cudnn> cudnn, CudnnGraph graph, int64_t index)
    : cudnn_(std::move(cudnn)), graph_(std::move(graph)), index_(index) {
  int64_t bytes = 0;
  check_cudnn(graph_->get_workspace_size_plan_at_index(index_, bytes),
              "asking for cuDNN's workspace");
  workspace_bytes_ = static_cast<size_t>(bytes);
}

void CudnnEngine::run(Stream& stream, std::span<void*> tensors, void* workspace) const {
  check_cudnn(graph_->execute_plan_at_index(cudnn_->handle(stream), tensors.data(),
                                            static_cast<int>(tensors.size()), workspace, index_),
              "an operation of cuDNN");
}

std::vector<Candidate> list_engines(const std::shared_ptr<Cudnn>& cudnn, const CudnnGraph& graph,
                                    const std::vector<fe::NumericalNote_t>& forbidden,
                                    const std::function<AlgorithmPtr(CudnnEngine)>& create) {
  require_cudnn(graph->build_operation_graph(cudnn->handle()));
  require_cudnn(graph->create_execution_plans({fe::HeurMode_t::A, fe::HeurMode_t::FALLBACK}));
  graph->deselect_numeric_notes(forbidden);
  graph->deselect_workspace_greater_than(kWorkspaceLimit);
  std::vector<Candidate> list;
  std::set<std::string> names;
  for (int64_t i = 0; i < graph->get_execution_plan_count(); ++i) {
    std::string name;
    check_cudnn(graph->get_plan_name_at_index(i, name), "naming an engine of cuDNN");
    if (!names.insert(name).second) continue;  // the modes A and FALLBACK overlap
    list.push_back({name, [=]() -> AlgorithmPtr {
                      if (graph->build_plan_at_index(i).is_bad()) return nullptr;
                      return create(CudnnEngine(cudnn, graph, i));
                    }});
  }
  return list;
}

std::vector<Candidate> list_convolutions(const std::shared_ptr<Cudnn>& cudnn,
                                         const Convolution& convolution) {
  const CudnnGraph graph = describe(*cudnn, convolution);
  const bool bias = convolution.bias.has_value();
  return list_engines(cudnn, graph, forbidden_notes(convolution), [bias](CudnnEngine engine) {
    return std::make_shared<ConvolutionEngine>(std::move(engine), bias);
  });
}

AlgorithmPtr find_convolution(const Context& context, const Convolution& convolution) {
  Libraries& libraries = *context.libraries;
  return libraries.engines.choose(key(convolution), bytes(convolution),
                                  [&] { return list_convolutions(libraries.cudnn, convolution); });
}

}  // namespace trireme::ops::cuda
