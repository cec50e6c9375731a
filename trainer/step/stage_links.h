// The connections between adjacent pipeline stages, and the transfer of the values that cross a
// cut: activations to the next stage, their gradients back. Transfers run on streams of their own,
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
#include "trainer/step/pipeline_schedule.h"

namespace trireme::train {

// A connection to the same replica of an adjacent stage, for transfers in one direction.
struct StageLink {
  std::unique_ptr<comm::Communicator> communicator;  // of the two ranks
  std::unique_ptr<Stream> stream;
  int peer = 0;  // rank in the communicator

  // Blocks until no transfer uses any memory. If an exception unwinds, peers may take part in no
  // more of them, so they are cancelled.
  void drain() const noexcept;
};

// The links of a rank; those at the ends of the pipeline are empty.
struct StageLinks {
  // `communicator` connects all ranks over the device's memory. All ranks must call it together,
  // and destroy the links together, before the communicator.
  StageLinks(comm::Communicator& communicator, const Grid& its_grid, Device& device);

  const Grid grid;
  StageLink from_previous, to_next;  // activations
  StageLink from_next, to_previous;  // gradients
};

// What a rank computes of the network, and how it exchanges values with other stages.
struct PipelineStage {
  Grid grid;
  model::Stage stage;           // whole if there is one stage
  StageLinks* links = nullptr;  // null if there is one stage
};

// The contents of one port for several micro-batches, which use the buffers in turn, and their
// transfers. Without bytes to transfer, does nothing.
class StageBuffers {
 public:
  enum class Direction { kReceive, kSend };
  // All arguments must outlive the buffers.
  StageBuffers(StageLink& link, Direction direction, Device& device, Stream& compute, size_t bytes,
               int64_t buffers);
  ~StageBuffers();

  // Begins a step. Its transfers start after `begun`, an event of the compute stream.
  void begin(int64_t micro_batches, Event& begun);
  // Makes the compute stream wait until the micro-batch has been received, or until its buffer can
  // be written to.
  void wait(int64_t micro_batch);
  // Declares that the work queued on the compute stream so far is the last that reads what has been
  // received (or writes what is sent) of the micro-batch.
  void release(int64_t micro_batch);
  // Returns whether transfer() is permitted: the work before the next transfer has been queued.
  bool can_transfer() const { return transferred_ < permitted_; }
  // Queues the transfer of the next micro-batch.
  void transfer();
  // Makes the compute stream wait for all transfers of the step.
  void end();

  bool is_used() const { return !slots_.empty(); }
  void* memory(int64_t micro_batch) const;
  size_t bytes() const { return memory_.bytes(); }

 private:
  struct Slot {
    std::unique_ptr<Event> computed, transferred;
  };
  int64_t count() const { return std::ssize(slots_); }
  const Slot& slot(int64_t micro_batch) const {
    return slots_[static_cast<size_t>(micro_batch % count())];
  }

  // Makes the compute stream wait for a transfer.
  void wait_for(Event& transferred);

  StageLink& link_;
  const bool sends_;
  const bool blocks_;  // whether the host waits for transfers
  Stream& compute_;
  const size_t message_;
  std::vector<Slot> slots_;
  Buffer memory_;
  // Of the step:
  int64_t micro_batches_ = 0;
  int64_t permitted_ = 0;    // transfers
  int64_t transferred_ = 0;  // transfers queued
};

// Runs the passes of a stage's program and the transfers around them.
//
// On CPUs, a transfer is queued when its buffer is ready. NCCL runs the operations of all streams
// in the order of the calls, and each may block until the other stage runs it, too. Therefore
// transfers on GPUs are queued in transfer_order(). They could be grouped (ncclGroupStart) where
// two stages exchange values at the same time, but each would then start when both are ready.
class StageExchange {
 public:
  // `in_flight` is the maximum number of micro-batches between the beginning of their forward pass
  // and the end of their backward pass, or of their forward pass if the program has no backward
  // pass. All arguments must outlive this object.
  StageExchange(StageLinks& links, Device& device, Stream& compute, const model::Program& program,
                int64_t in_flight, bool has_backward);

  // Queue one step, in the order of a schedule: begin(); before() and after() around each pass of
  // each micro-batch, of which before() binds the context's ports to the memory of the micro-batch;
  // end(), after which the compute stream has waited for all transfers. A step can be recorded.
  void begin(int64_t micro_batches);
  void before(const PipelineAction& pass, model::Context& context);
  void after(const PipelineAction& pass);
  void end();

  size_t bytes() const;
  // Return the bytes of the buffers of such a program, and of those at a cut where a stage begins
  // or ends.
  static size_t bytes_of(const model::Program& program, int64_t in_flight);
  static size_t bytes_at(const model::Cut& cut, bool begins, int64_t in_flight);

 private:
  // Returns the buffers of a kind of transfer.
  StageBuffers& buffers(StageTransfer::Kind kind);
  // Queues the transfers that can be queued now.
  void transfer();
  void transfer_in_order();

  const Grid grid_;
  Stream& compute_;
  const bool has_backward_;
  const bool ordered_;  // whether transfers are queued in transfer_order()
  std::unique_ptr<Event> begun_;
  StageBuffers input_, output_, output_gradient_, input_gradient_;
  // Of the step, if ordered_:
  std::vector<StageTransfer> order_;
  size_t next_ = 0;
};

}  // namespace trireme::train
