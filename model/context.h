// One micro-batch in flight: a program bound to memory. Running it only encodes.
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

// The arrays that all contexts of a model share; owned by the caller.
struct ModelArrays {
  void* parameters = nullptr;     // Parameters::elements
  void* low_precision = nullptr;  // LowPrecisionCopy of them, if the network reads one
  // Parameters::trained_elements; the first kMetricCount are the metrics, all that inference uses.
  void* gradients = nullptr;
  void* running = nullptr;  // Parameters::running_elements
};

// Notified of the operations of a program while they are queued.
class InstructionObserver {
 public:
  virtual ~InstructionObserver() = default;
  virtual void before(size_t instruction, Stream& stream) = 0;
  virtual void after(size_t instruction, Stream& stream) = 0;
};

class Context {
 public:
  // `activations`, of Program::activation_bytes(), is in use from a forward pass to the end of its
  // backward pass; contexts that take turns may share it. Program and memory outlive the context.
  Context(const Program& program, const ModelArrays& arrays, void* activations);

  // What passes through a port from now on; ports that the program lacks are ignored. Memory is
  // only written through kOutput and kState.
  void bind(Port port, const void* memory);
  void bind_batch(const void* inputs, const void* targets, ops::StepState* state);

  // Throws Error when a port of the program is not bound.
  void forward(Stream& stream) const;
  // `final_end(n)`: gradients below element n are final once what is queued on the stream is done.
  void backward(Stream& stream, const std::function<void(int64_t)>& final_end) const;

  // Who is notified of each operation from now on; null: nobody, as at first.
  void observe(InstructionObserver* observer) { observer_ = observer; }

  struct NotFinite {
    int instruction = 0;
    std::string what;  // "output of layer 'conv2' is not finite (nan)"
  };
  // Forward and backward with a look at all that each instruction reads and writes: the first NaN
  // or infinity. To find what went wrong, slowly; it always comes to the end, since layers may wait
  // for other ranks.
  std::optional<NotFinite> first_not_finite(Device& device, Stream& stream,
                                            const std::function<void(int64_t)>& final_end) const;

 private:
  void* address(const Value& value, const ModelArrays& arrays) const;
  void run(Stream& stream, size_t begin, size_t end,
           const std::function<void(int64_t)>* final_end) const;
  std::string describe(size_t instruction, const Value& value) const;
  std::string not_finite(size_t instruction, bool written, Device& device, Stream& stream) const;

  const CompiledNetwork* network_;
  std::byte* activations_;
  std::vector<void*> table_;  // all arguments of all operations
  InstructionObserver* observer_ = nullptr;
};

}  // namespace trireme::model
