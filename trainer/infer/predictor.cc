#include "trainer/infer/predictor.h"

#include <optional>
#include <vector>

#include "model/context.h"

namespace trireme::train {

struct Predictor::State {
  State(const TrainedModel& model, ops::Backend& backend, int64_t its_rows)
      : device(backend.device()),
        stream(device.create_stream(StreamKind::kCompute)),
        parameters(model.parameters()),
        rows(its_rows) {
    const model::Graph& graph = model.graph();
    program = model::Program::compile(graph, backend,
                                      {.batch = rows,
                                       .training = false,
                                       .dtype = parameters.dtype,
                                       .output = true,
                                       .loss = false},
                                      parameters);
    const model::Node& last = graph.nodes[static_cast<size_t>(graph.nodes.back().inputs[0])];
    outputs = last.signature.output.elements();
    host_output.resize(static_cast<size_t>(rows * outputs));
    activations = device.allocate(program->activation_bytes());
    output = device.allocate(host_output.size() * sizeof(float));
    input_bytes = static_cast<size_t>(rows) * graph.input.input.bytes();
    if (device.kind() != DeviceKind::kCpu) inputs = device.allocate(input_bytes);
    context.emplace(*program, model.arrays(), activations.data());
    context->bind(model::Port::kOutput, output.data());
  }

  std::span<const float> run(const std::byte* batch, int64_t valid) {
    // The CPU reads the batch in place.
    if (inputs.data()) device.copy(inputs.data(), batch, input_bytes, *stream);
    context->bind(model::Port::kInput, inputs.data() ? inputs.data() : batch);
    context->forward(*stream);
    const auto numbers = static_cast<size_t>(valid * outputs);
    device.copy(host_output.data(), output.data(), numbers * sizeof(float), *stream);
    stream->synchronize();
    return std::span(host_output).first(numbers);
  }

  Device& device;
  std::unique_ptr<Stream> stream;
  model::Parameters parameters;
  int64_t rows;
  int64_t outputs = 0;
  std::unique_ptr<const model::Program> program;
  std::optional<model::Context> context;
  size_t input_bytes = 0;
  Buffer activations, output, inputs;
  std::vector<float> host_output;
};

Predictor::Predictor(const TrainedModel& model, ops::Backend& backend, int64_t rows)
    : state_(std::make_unique<State>(model, backend, rows)) {}
Predictor::~Predictor() = default;

int64_t Predictor::outputs() const { return state_->outputs; }

std::span<const float> Predictor::run(const std::byte* inputs, int64_t rows) {
  return state_->run(inputs, rows);
}

}  // namespace trireme::train
