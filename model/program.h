// A network compiled for one device and one micro-batch size: a flat list of planned operations
// over memory whose every byte was placed beforehand. It is immutable; a Context (context.h) runs
// it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/collective.h"
#include "model/graph.h"
#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme::model {

struct CompileOptions {
  int64_t batch = 1;          // rows of a micro-batch
  bool training = true;       // false: forward with running statistics, metrics only
  DType dtype = DType::kF32;  // to compute in; parameters that are there already decide themselves
  // Gradients are added to what is in their array instead of overwriting it.
  bool accumulate = false;
  // Inference only: what the loss reads (logits, or the numbers predicted) goes to Port::kOutput.
  bool output = false;
  // For layers that communicate; null: alone.
  Collective* collective = nullptr;
};

// Where data of one micro-batch enters and leaves a program.
enum class Port : uint8_t {
  kInput,   // `batch` samples in the format of Graph::input
  kTarget,  // theirs
  kState,   // a StepState: where the micro-batch is within the run
  kOutput,  // f32 [batch, F] of CompileOptions::output, row-major
};
inline constexpr size_t kPorts = 4;

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

struct CompiledNetwork;

class Program {
 public:
  // Training decides the parameters' layouts and order, and fills `parameters`; inference takes
  // them as they are when they are there already.
  static std::unique_ptr<const Program> compile(const Graph& graph, ops::Backend& backend,
                                                const CompileOptions& options,
                                                Parameters& parameters);
  ~Program();

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
  friend class Context;
  explicit Program(std::unique_ptr<const CompiledNetwork> network);
  std::unique_ptr<const CompiledNetwork> network_;
};

}  // namespace trireme::model
