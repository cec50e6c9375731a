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

StageLinks::StageLinks(comm::Communicator& communicator, const Grid& grid, Device& device) {
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

StageBuffers::StageBuffers(StageLink& link, Device& device, Stream& compute, size_t bytes,
                           int64_t buffers)
    : link_(link), compute_(compute), message_(bytes) {
  if (bytes == 0) return;
  for (int64_t i = 0; i < buffers; ++i) {
    slots_.push_back({device.create_event(), device.create_event()});
  }
  memory_ = device.allocate(bytes * slots_.size());
}

StageBuffers::~StageBuffers() {
  if (!slots_.empty()) link_.drain();
}

size_t StageBuffers::index(int64_t micro_batch) const {
  return static_cast<size_t>(micro_batch) % slots_.size();
}

void* StageBuffers::memory(int64_t micro_batch) const {
  return slots_.empty() ? nullptr : memory_.data() + index(micro_batch) * message_;
}

void StageBuffers::wait(int64_t micro_batch) {
  if (slots_.empty()) return;
  // A CPU blocks here.
  comm::Ledger& ledger = link_.communicator->ledger();
  ledger.set_awaits_transfer(true);
  compute_.wait(*slots_[index(micro_batch)].transferred);
  ledger.set_awaits_transfer(false);
}

void StageBuffers::pass_on(int64_t micro_batch) {
  compute_.record(*slots_[index(micro_batch)].computed);
}

void StageInbox::begin(int64_t micro_batches) {
  micro_batches_ = micro_batches;
  for (int64_t m = 0; m < std::min(micro_batches, count()); ++m) receive(m);
}

void StageInbox::receive(int64_t micro_batch) {
  queue(micro_batch, [&](void* memory, int64_t bytes) {
    link_.communicator->recv(memory, bytes, DType::kU8, link_.peer, *link_.stream);
  });
}

void StageInbox::release(int64_t micro_batch) {
  if (count() == 0) return;
  pass_on(micro_batch);
  const int64_t next = micro_batch + count();
  if (next < micro_batches_) receive(next);
}

void StageOutbox::send(int64_t micro_batch) {
  if (count() == 0) return;
  pass_on(micro_batch);
  queue(micro_batch, [&](const void* memory, int64_t bytes) {
    link_.communicator->send(memory, bytes, DType::kU8, link_.peer, *link_.stream);
  });
}

StageExchange::StageExchange(StageLinks& links, Device& device, Stream& compute,
                             const model::Program& program, int64_t in_flight, bool has_backward)
    : has_backward_(has_backward),
      input_(links.from_previous, device, compute, program.port_bytes(Port::kStageInput),
             input_buffers(in_flight)),
      output_(links.to_next, device, compute, program.port_bytes(Port::kStageOutput), in_flight),
      output_gradient_(links.from_next, device, compute,
                       program.port_bytes(Port::kStageOutputGradient), kGradientBuffers),
      input_gradient_(links.to_previous, device, compute,
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

void StageExchange::bind(model::Context& context, int64_t micro_batch) const {
  context.bind(Port::kStageInput, input_.memory(micro_batch));
  context.bind(Port::kStageOutput, output_.memory(micro_batch));
  context.bind(Port::kStageOutputGradient, output_gradient_.memory(micro_batch));
  context.bind(Port::kStageInputGradient, input_gradient_.memory(micro_batch));
}

void StageExchange::begin(int64_t micro_batches) {
  input_.begin(micro_batches);
  if (has_backward_) output_gradient_.begin(micro_batches);
}

void StageExchange::before_forward(int64_t micro_batch) {
  input_.wait(micro_batch);
  output_.wait(micro_batch);
}

void StageExchange::after_forward(int64_t micro_batch) {
  output_.send(micro_batch);
  if (!has_backward_) input_.release(micro_batch);
}

void StageExchange::before_backward(int64_t micro_batch) {
  output_gradient_.wait(micro_batch);
  input_gradient_.wait(micro_batch);
}

void StageExchange::after_backward(int64_t micro_batch) {
  input_gradient_.send(micro_batch);
  output_gradient_.release(micro_batch);
  input_.release(micro_batch);
}

}  // namespace trireme::train
