// The connections between adjacent pipeline stages, and the transfer of the values that cross a cut:
// activations to the next stage, their gradients back. Transfers run on streams of their own,
// concurrently with computation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/device.h"
#include "model/context.h"
#include "model/program.h"
#include "trainer/config/grid.h"

namespace trireme::train {

// A connection to the same replica of an adjacent stage, for transfers in one direction.
struct StageLink {
  std::unique_ptr<comm::Communicator> communicator;  // of the two ranks
  std::unique_ptr<Stream> stream;
  int peer = 0;  // rank in the communicator

  // Blocks until no transfer uses any memory. If an exception unwinds, peers may take part in no more
  // of them, so they are cancelled.
  void drain() const noexcept;
};

// The links of a rank; those at the ends of the pipeline are empty.
struct StageLinks {
  // `communicator` connects all ranks over the device's memory. All ranks must call it together, and
  // destroy the links together, before the communicator.
  StageLinks(comm::Communicator& communicator, const Grid& grid, Device& device);

  StageLink from_previous, to_next;  // activations
  StageLink from_next, to_previous;  // gradients
};

// What a rank computes of the network, and how it exchanges values with other stages.
struct PipelineStage {
  Grid grid;
  model::Stage stage;           // whole if there is one stage
  StageLinks* links = nullptr;  // null if there is one stage
};

// The contents of one port for several micro-batches, which use the buffers in turn. Without bytes to
// transfer, does nothing.
class StageBuffers {
 public:
  // All arguments must outlive the buffers.
  StageBuffers(StageLink& link, Device& device, Stream& compute, size_t bytes, int64_t buffers);
  ~StageBuffers();

  // Makes the compute stream wait until the last transfer of the micro-batch's buffer is done.
  void wait(int64_t micro_batch);
  void* memory(int64_t micro_batch) const;
  size_t bytes() const { return memory_.bytes(); }

 protected:
  int64_t count() const { return std::ssize(slots_); }
  // Declares that the work queued on the compute stream so far is the last that uses the buffer
  // before its next transfer.
  void pass_on(int64_t micro_batch);
  // Queues a transfer of the buffer after that work: transfer(memory, bytes).
  template <class F>
  void queue(int64_t micro_batch, F&& transfer) {
    link_.stream->wait(*slots_[index(micro_batch)].computed);
    transfer(memory(micro_batch), static_cast<int64_t>(message_));
    link_.stream->record(*slots_[index(micro_batch)].transferred);
  }
  StageLink& link_;

 private:
  struct Slot {
    std::unique_ptr<Event> computed, transferred;
  };
  size_t index(int64_t micro_batch) const;

  Stream& compute_;
  const size_t message_;
  std::vector<Slot> slots_;
  Buffer memory_;
};

// Receives a port, micro-batch after micro-batch.
class StageInbox : public StageBuffers {
 public:
  using StageBuffers::StageBuffers;
  // Starts to receive the first of `micro_batches`.
  void begin(int64_t micro_batches);
  // Declares that the buffer of the micro-batch is not read any more, and starts to receive the next
  // one into it.
  void release(int64_t micro_batch);

 private:
  void receive(int64_t micro_batch);
  int64_t micro_batches_ = 0;
};

// Sends a port, micro-batch after micro-batch.
class StageOutbox : public StageBuffers {
 public:
  using StageBuffers::StageBuffers;
  // Sends the buffer, after the work queued on the compute stream so far.
  void send(int64_t micro_batch);
};

// Runs the passes of a stage's program and the transfers around them.
class StageExchange {
 public:
  // `in_flight` is the maximum number of micro-batches between the beginning of their forward pass
  // and the end of their backward pass, or of their forward pass if the program has no backward
  // pass. All arguments must outlive this object.
  StageExchange(StageLinks& links, Device& device, Stream& compute, const model::Program& program,
                int64_t in_flight, bool has_backward);

  // Binds the ports to the memory of a micro-batch.
  void bind(model::Context& context, int64_t micro_batch) const;
  // Queue one step, in the order of a schedule: begin(), and for each pass of each micro-batch the
  // first function before it and the second after it.
  void begin(int64_t micro_batches);
  void before_forward(int64_t micro_batch);
  void after_forward(int64_t micro_batch);
  void before_backward(int64_t micro_batch);
  void after_backward(int64_t micro_batch);

  size_t bytes() const;
  // Return the bytes of the buffers of such a program, and of those at a cut where a stage begins
  // or ends.
  static size_t bytes_of(const model::Program& program, int64_t in_flight);
  static size_t bytes_at(const model::Cut& cut, bool begins, int64_t in_flight);

 private:
  const bool has_backward_;
  StageInbox input_;
  StageOutbox output_;
  StageInbox output_gradient_;
  StageOutbox input_gradient_;
};

}  // namespace trireme::train
