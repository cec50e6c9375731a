// A Context is a Program bound to memory, for one micro-batch in flight. Its passes are queued on a
// stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/device.h"
#include "model/program.h"
#include "ops/step_state.h"

namespace trireme::model {

struct Value;

// Device arrays that all contexts of a model share. The caller owns them.
struct ModelArrays {
  void* parameters = nullptr;     // Parameters::elements
  void* low_precision = nullptr;  // LowPrecisionCopy of the parameters, if the network reads one
  // Parameters::trained_elements. The first kMetricCount are the metrics; inference needs only
  // these.
  void* gradients = nullptr;
  void* buckets = nullptr;        // Program::bucket_bytes() bytes, for transient gradients
  void* running_stats = nullptr;  // Parameters::running_stat_elements
};

// Called before and after each operation of a program is queued.
class InstructionObserver {
 public:
  virtual ~InstructionObserver() = default;
  virtual void before(size_t instruction, Stream& stream) = 0;
  virtual void after(size_t instruction, Stream& stream) = 0;
};

class Context {
 public:
  // `activations` has Program::activation_bytes() bytes and is in use from the start of a forward
  // pass to the end of its backward pass; contexts whose passes do not overlap may share it. The
  // program and all memory must outlive the context.
  Context(const Program& program, const ModelArrays& arrays, void* activations);

  // Sets the memory that a port reads or writes from now on. Ignores ports that the program does
  // not have. Memory is written only through kOutput, kState and kCache.
  void bind(Port port, const void* memory);
  // Sets the memory of the carried states before and after a pass, in which each state has `rows`
  // rows, one state after the other. Those of this context begin at row `first`.
  void bind_states(const void* before, void* after, int64_t rows, int64_t first);
  // Binds kInput, kTarget and kState.
  void bind_batch(const void* inputs, const void* targets, ops::StepState* state);

  // Queues the forward pass. Throws Error if a port of the program is not bound. Calls
  // `reads_from(n)`, unless it is empty, before operations that are the first to read elements of
  // the trained parameters from n on.
  void forward(Stream& stream, const std::function<void(int64_t)>& reads_from = {}) const;
  // Queues the backward pass. Calls `final_end(n)`, unless it is empty, each time the work queued
  // so far makes the gradients of all elements below n final.
  void backward(Stream& stream, const std::function<void(int64_t)>& final_end) const;

  // Sets the observer of all operations queued from now on; null (the default) removes it.
  void observe(InstructionObserver* observer) { observer_ = observer; }

  struct NotFinite {
    int instruction = 0;
    std::string what;  // "output of layer 'conv2' is not finite (nan)"
  };
  // Run a pass, check the inputs and outputs of each instruction on the host, and return the first
  // NaN or infinity. A slow diagnostic. Run the remaining instructions even after one has been
  // found, since other ranks may wait in the collectives of their layers.
  std::optional<NotFinite> check_forward(Device& device, Stream& stream) const;
  std::optional<NotFinite> check_backward(Device& device, Stream& stream,
                                          const std::function<void(int64_t)>& final_end) const;

 private:
  void* address(const Value& value, const ModelArrays& arrays) const;
  void run(Stream& stream, size_t begin, size_t end, const std::function<void(int64_t)>* final_end,
           const std::function<void(int64_t)>* reads_from = nullptr) const;
  std::optional<NotFinite> check(size_t begin, size_t end, Device& device, Stream& stream,
                                 const std::function<void(int64_t)>* final_end) const;
  std::string describe(size_t instruction, const Value& value) const;
  std::string not_finite(size_t instruction, bool written, Device& device, Stream& stream) const;

  const CompiledNetwork* network_;
  std::byte* activations_;
  std::vector<void*> table_;  // all arguments of all operations
  InstructionObserver* observer_ = nullptr;
};

}  // namespace trireme::model
