#include "trainer/step/stage_links.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "core/error.h"

namespace trireme::train {
namespace {

using model::Port;

// While one buffer of gradients is in use, the next is received or the one before is sent.
constexpr int64_t kGradientBuffers = 2;

int64_t input_buffers(int64_t in_flight) { return in_flight + 1; }

// Returns the communicator of the stages at both ends of an edge, which begins at an even (or odd)
// stage, of the same replica. All ranks must call it.
std::unique_ptr<comm::Communicator> connect(comm::Communicator& communicator, const Grid& grid,
                                            bool odd) {
  const int first = grid.stage - (grid.stage % 2 == (odd ? 1 : 0) ? 0 : 1);
  auto edge = communicator.split((first + 1) * grid.replicas + grid.replica, grid.stage);
  return edge->size() == 2 ? std::move(edge) : nullptr;
}

StageLink link_to(std::unique_ptr<comm::Communicator> communicator, Device& device) {
  if (!communicator) return {};
  const int peer = 1 - communicator->rank();
  return {std::move(communicator), device.create_stream(StreamKind::kBackground), peer};
}

}  // namespace

StageLinks::StageLinks(comm::Communicator& communicator, const Grid& its_grid, Device& device)
    : grid(its_grid) {
  for (const bool odd : {false, true}) {
    auto activations = link_to(connect(communicator, grid, odd), device);
    auto gradients = link_to(connect(communicator, grid, odd), device);
    const bool begins_here = (grid.stage % 2 == 1) == odd;
    (begins_here ? to_next : from_previous) = std::move(activations);
    (begins_here ? from_next : to_previous) = std::move(gradients);
  }
}

void StageLink::drain() const noexcept {
  if (std::uncaught_exceptions() > 0) communicator->cancel();
  try {
    stream->synchronize();
  } catch (const Error&) {
    // It has been reported where the compute stream waited for the transfer.
  }
}

StageBuffers::StageBuffers(StageLink& link, Direction direction, Device& device, Stream& compute,
                           size_t bytes, int64_t buffers)
    : link_(link),
      sends_(direction == Direction::kSend),
      blocks_(device.kind() == DeviceKind::kCpu),
      compute_(compute),
      message_(bytes) {
  if (bytes == 0) return;
  for (int64_t i = 0; i < buffers; ++i) {
    slots_.push_back({device.create_event(), device.create_event()});
  }
  memory_ = device.allocate(bytes * slots_.size());
}

StageBuffers::~StageBuffers() {
  if (is_used()) link_.drain();
}

void* StageBuffers::memory(int64_t micro_batch) const {
  if (!is_used()) return nullptr;
  return memory_.data() + static_cast<size_t>(micro_batch % count()) * message_;
}

void StageBuffers::begin(int64_t micro_batches, Event& begun) {
  micro_batches_ = micro_batches;
  transferred_ = 0;
  permitted_ = sends_ ? 0 : std::min(micro_batches, count());
  if (is_used()) link_.stream->wait(begun);
}

void StageBuffers::wait(int64_t micro_batch) {
  if (!is_used()) return;
  const int64_t awaited = sends_ ? micro_batch - count() : micro_batch;
  if (awaited >= 0) wait_for(*slot(awaited).transferred);
}

// A CPU blocks here, so the ledger says why. A GPU waits later, when the host has gone on.
void StageBuffers::wait_for(Event& transferred) {
  if (!blocks_) return compute_.wait(transferred);
  comm::Ledger& ledger = link_.communicator->ledger();
  ledger.set_awaits_transfer(true);
  compute_.wait(transferred);
  ledger.set_awaits_transfer(false);
}

void StageBuffers::release(int64_t micro_batch) {
  const int64_t next = sends_ ? micro_batch : micro_batch + count();
  if (!is_used() || next >= micro_batches_) return;
  compute_.record(*slot(next).computed);
  permitted_ = next + 1;
}

void StageBuffers::transfer() {
  const int64_t micro_batch = transferred_++;
  const Slot& used = slot(micro_batch);
  if (sends_ || micro_batch >= count()) link_.stream->wait(*used.computed);
  const auto bytes = static_cast<int64_t>(message_);
  void* const data = memory(micro_batch);
  if (sends_) {
    link_.communicator->send(data, bytes, DType::kU8, link_.peer, *link_.stream);
  } else {
    link_.communicator->recv(data, bytes, DType::kU8, link_.peer, *link_.stream);
  }
  link_.stream->record(*used.transferred);
}

void StageBuffers::end() {
  if (transferred_ > 0) wait_for(*slot(transferred_ - 1).transferred);
}

StageExchange::StageExchange(StageLinks& links, Device& device, Stream& compute,
                             const model::Program& program, int64_t in_flight, bool has_backward)
    : grid_(links.grid),
      compute_(compute),
      has_backward_(has_backward),
      ordered_(device.kind() == DeviceKind::kCuda),
      begun_(device.create_event()),
      input_(links.from_previous, StageBuffers::Direction::kReceive, device, compute,
             program.port_bytes(Port::kStageInput), input_buffers(in_flight)),
      output_(links.to_next, StageBuffers::Direction::kSend, device, compute,
              program.port_bytes(Port::kStageOutput), in_flight),
      output_gradient_(links.from_next, StageBuffers::Direction::kReceive, device, compute,
                       program.port_bytes(Port::kStageOutputGradient), kGradientBuffers),
      input_gradient_(links.to_previous, StageBuffers::Direction::kSend, device, compute,
                      program.port_bytes(Port::kStageInputGradient), kGradientBuffers) {}

size_t StageExchange::bytes_of(const model::Program& program, int64_t in_flight) {
  const auto bytes = [&](Port port, int64_t buffers) {
    return program.port_bytes(port) * static_cast<size_t>(buffers);
  };
  return bytes(Port::kStageInput, input_buffers(in_flight)) + bytes(Port::kStageOutput, in_flight) +
         bytes(Port::kStageOutputGradient, kGradientBuffers) +
         bytes(Port::kStageInputGradient, kGradientBuffers);
}

size_t StageExchange::bytes_at(const model::Cut& cut, bool begins, int64_t in_flight) {
  const int64_t buffers = begins ? input_buffers(in_flight) : in_flight;
  return cut.forward_bytes * static_cast<size_t>(buffers) +
         cut.backward_bytes * static_cast<size_t>(kGradientBuffers);
}

size_t StageExchange::bytes() const {
  return input_.bytes() + output_.bytes() + output_gradient_.bytes() + input_gradient_.bytes();
}

StageBuffers& StageExchange::buffers(StageTransfer::Kind kind) {
  switch (kind) {
    case StageTransfer::kReceiveInput:
      return input_;
    case StageTransfer::kSendOutput:
      return output_;
    case StageTransfer::kReceiveGradient:
      return output_gradient_;
    case StageTransfer::kSendGradient:
      break;
  }
  return input_gradient_;
}

void StageExchange::transfer() {
  if (ordered_) return transfer_in_order();
  for (StageBuffers* each : {&input_, &output_, &output_gradient_, &input_gradient_}) {
    while (each->can_transfer()) each->transfer();
  }
}

void StageExchange::transfer_in_order() {
  for (; next_ < order_.size(); ++next_) {
    StageBuffers& next = buffers(order_[next_].kind);
    if (!next.is_used()) continue;
    if (!next.can_transfer()) return;
    next.transfer();
  }
}

void StageExchange::begin(int64_t micro_batches) {
  if (ordered_) order_ = transfer_order(grid_.stage, grid_.stages, micro_batches);
  next_ = 0;
  compute_.record(*begun_);
  for (StageBuffers* each : {&input_, &output_, &output_gradient_, &input_gradient_}) {
    each->begin(micro_batches, *begun_);
  }
  transfer();
}

void StageExchange::before(const PipelineAction& pass, model::Context& context) {
  const int64_t micro_batch = pass.micro_batch;
  context.bind(Port::kStageInput, input_.memory(micro_batch));
  context.bind(Port::kStageOutput, output_.memory(micro_batch));
  context.bind(Port::kStageOutputGradient, output_gradient_.memory(micro_batch));
  context.bind(Port::kStageInputGradient, input_gradient_.memory(micro_batch));
  (pass.forward ? input_ : output_gradient_).wait(micro_batch);
  (pass.forward ? output_ : input_gradient_).wait(micro_batch);
}

void StageExchange::after(const PipelineAction& pass) {
  const int64_t micro_batch = pass.micro_batch;
  if (pass.forward) {
    output_.release(micro_batch);
    if (!has_backward_) input_.release(micro_batch);
  } else {
    input_gradient_.release(micro_batch);
    output_gradient_.release(micro_batch);
    input_.release(micro_batch);
  }
  transfer();
}

void StageExchange::end() {
  for (StageBuffers* each : {&input_, &output_, &output_gradient_, &input_gradient_}) each->end();
}

}  // namespace trireme::train
