// A network compiled for one device and one micro-batch size: a flat list of planned operations
// over memory whose every byte was placed beforehand. Running it only encodes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective.h"
#include "model/graph.h"
#include "model/parameters.h"
#include "ops/backend.h"
#include "ops/step_state.h"

namespace trireme {

struct CompileOptions {
  int64_t batch = 1;          // rows of a micro-batch
  bool training = true;       // false: forward with running statistics, metrics only
  DType dtype = DType::kF32;  // to compute in; parameters that are there already decide themselves
  // Gradients are added to what is in their array instead of overwriting it.
  bool accumulate = false;
  // Inference only: what the loss reads (logits, or the numbers predicted) goes to
  // ProgramMemory::output.
  bool output = false;
  // For layers that communicate; null: alone.
  Collective* collective = nullptr;
};

// The memory a program works on; owned by the caller.
struct ProgramMemory {
  void* parameters = nullptr;     // Parameters::elements
  void* low_precision = nullptr;  // LowPrecisionCopy of them, if the network reads one
  // Parameters::trained_elements; the first kMetricCount are the metrics, all that inference uses.
  void* gradients = nullptr;
  void* running = nullptr;      // Parameters::running_elements
  void* activations = nullptr;  // Program::activation_bytes()
  float* output = nullptr;      // [batch, F] of CompileOptions::output, row-major
};

struct LayerReport {
  std::string name;
  std::string kind;
  Shape output;  // of one sample
  int64_t parameters = 0;
  int64_t frozen = 0;  // of these
  double forward_flops = 0;
  double backward_flops = 0;
};

// An operation of a program.
struct InstructionReport {
  int layer = -1;  // of Program::layers(); -1: it prepares the input
  bool forward = true;
  std::string_view operation;  // "conv2d_backward_data"
  double flops = 0;            // see Program::forward_flops
  double bytes = 0;            // see Program::traffic_bytes
};

// Told of the operations of a program while they are queued.
class InstructionObserver {
 public:
  virtual ~InstructionObserver() = default;
  virtual void before(size_t instruction, Stream& stream) = 0;
  virtual void after(size_t instruction, Stream& stream) = 0;
};

class Program {
 public:
  // Training decides the parameters' layouts and order, and fills `parameters`; inference takes
  // them as they are when they are there already.
  static std::unique_ptr<Program> compile(const Graph& graph, Backend& backend,
                                          const CompileOptions& options, Parameters& parameters);
  ~Program();

  void bind(const ProgramMemory& memory);
  // The micro-batch to read next: `batch` inputs and targets in the format of Graph::input, and
  // where it is within the run.
  void bind_batch(const void* inputs, const void* targets, StepState* state);

  void forward(Stream& stream);
  // `final_end(n)`: gradients below element n are final once what is queued on the stream is done.
  void backward(Stream& stream, const std::function<void(int64_t)>& final_end);

  // Who is told of each operation from now on; null: nobody, as at first.
  void observe(InstructionObserver* observer);

  struct NotFinite {
    int instruction = 0;
    std::string what;  // "output of layer 'conv2' is not finite (nan)"
  };
  // Forward and backward with a look at all that each instruction reads and writes: the first NaN
  // or infinity. To find what went wrong, slowly; it always comes to the end, since layers may wait
  // for other ranks.
  std::optional<NotFinite> first_not_finite(Device& device, Stream& stream,
                                            const std::function<void(int64_t)>& final_end);

  size_t activation_bytes() const;
  // Floating-point operations of convolutions and dense layers, for `batch` rows.
  double forward_flops() const;
  double backward_flops() const;
  // Bytes that all operations together read and write, forward and backward, if each tensor of each
  // operation passes once between memory and processor.
  double traffic_bytes() const;
  std::vector<LayerReport> layers() const;
  // Forward, then backward, in the order in which they are queued.
  std::vector<InstructionReport> instructions() const;
  // One line an operation with its tensors' specs and places, for `inspect` and debugging.
  std::string listing() const;

 private:
  struct Impl;
  explicit Program(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
