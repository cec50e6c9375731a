// A Program is a network compiled for one device and one micro-batch size: a flat list of planned
// operations and a memory plan. It is immutable. A Context (context.h) runs it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/compile_options.h"
#include "model/graph.h"
#include "model/parameters.h"
#include "ops/backend.h"

namespace trireme::model {

// The inputs and outputs of a program, for one micro-batch.
enum class Port : uint8_t {
  kInput,   // `batch` samples in the format of Graph::input
  kTarget,  // their targets
  kState,   // a StepState: position of the micro-batch in the run, learning rate
  kOutput,  // f32 [batch, F], row-major; see CompileOptions::output
  // With CompileOptions::part:
  kStarts,  // i32 [batch]: the position of the first token that is read of each sequence
  kCache,   // Program::cache_bytes() bytes, the same for all programs of a network and a batch
  // With CompileOptions::carry_states, see Context::bind_states():
  kStatesBefore,  // the states before the first row of each sequence
  kStatesAfter,   // those after the last row
  // With CompileOptions::stage, Program::port_bytes() bytes each, in use like the activations:
  kStageInput,           // activations from the previous stage
  kStageOutput,          // activations for the next stage
  kStageOutputGradient,  // gradients from the next stage
  kStageInputGradient,   // gradients for the previous stage
};
inline constexpr size_t kPorts = 12;

struct LayerReport {
  std::string name;
  std::string kind;
  Shape output;  // shape of one sample's output
  int64_t parameters = 0;
  int64_t frozen = 0;  // number of these parameters that are frozen
  double forward_flops = 0;
  double backward_flops = 0;
};

// Describes one operation of a program.
struct InstructionReport {
  bool repeats() const { return repeated >= 0; }  // in the backward pass

  int layer = -1;  // index into Program::layers(); -1 if it prepares the input
  bool forward = true;
  int repeated = -1;           // the operation of the forward pass that it repeats, if any
  std::string_view operation;  // "conv2d_backward_data"
  double flops = 0;            // see Program::forward_flops
  double bytes = 0;            // see Program::traffic_bytes
};

// A place where a network can be cut into pipeline stages.
struct Cut {
  int node = 0;              // the first node of the later stage
  size_t forward_bytes = 0;  // activations that cross the cut, for one micro-batch
  size_t backward_bytes = 0;
};

struct CompiledNetwork;

class Program {
 public:
  // Compiles a graph. If `parameters` is empty, fills it in, with layouts and order chosen for this
  // program; otherwise uses it unchanged. Programs that share arrays are compiled with the same
  // `parameters`, the training program first, since its layouts are the ones to optimize for.
  static std::unique_ptr<const Program> compile(const Graph& graph, ops::Backend& backend,
                                                const CompileOptions& options,
                                                Parameters& parameters);
  ~Program();

  size_t activation_bytes() const;
  // Returns the bytes of activations that the backward pass reads, which wait for it at the end of
  // the forward pass. At other times activation_bytes() may be in use.
  size_t saved_bytes() const;
  size_t cache_bytes() const;  // of Port::kCache
  // Returns the states of Port::kStatesBefore and kStatesAfter, in their order in memory.
  const std::vector<CarriedState>& carried_states() const;
  // Returns the bytes that a stage exchanges with an adjacent one through the port.
  size_t port_bytes(Port port) const;
  // Returns whether any operation reads the samples or their targets.
  bool reads_samples() const;
  // Returns the places where a whole network can be cut, in the order of the nodes.
  std::vector<Cut> cuts() const;
  // Return, for nodes [begin, end) of a whole network as a pipeline stage, the parameters that it
  // has, as indexes into Parameters::all, and the approximate size of their activations.
  std::vector<int> parameters_of(int begin, int end) const;
  size_t activation_bytes_of(int begin, int end, ops::Backend& backend) const;
  // With CompileOptions::transient_gradients: the size of ModelArrays::buckets, and where each
  // bucket is in it. The memory of a bucket is reused once all gradients of the next bucket are
  // final.
  size_t bucket_bytes() const;
  const std::vector<size_t>& bucket_offsets() const;
  // Return the number of floating-point operations of convolutions and dense layers, for `batch`
  // rows.
  double forward_flops() const;
  double backward_flops() const;
  // Returns the number of bytes that all operations read and write, forward and backward, if each
  // operation transfers each of its tensors once between memory and processor.
  double traffic_bytes() const;
  std::vector<LayerReport> layers() const;
  // Returns the operations in the order in which they are queued: forward, then backward.
  std::vector<InstructionReport> instructions() const;
  // Returns one line for each operation with the specs and memory locations of its tensors, for
  // `inspect` and debugging.
  std::string listing() const;

 private:
  friend class Context;
  explicit Program(std::unique_ptr<const CompiledNetwork> network);
  std::unique_ptr<const CompiledNetwork> network_;
};

}  // namespace trireme::model
