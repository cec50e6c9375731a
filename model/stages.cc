#include "model/stages.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/alignment.h"
#include "core/error.h"

namespace trireme::model {
namespace {

using Home = Value::Home;

// A storage that one stage sends to an adjacent one: forward if to > from.
struct Transfer {
  int storage = 0;
  int from = 0;
  int to = 0;
  bool operator==(const Transfer&) const = default;
};

// The first and the last of the adjacent stages that have the current contents of a storage.
struct Holders {
  int first = -1;
  int last = -1;
};

bool is_activation(const InstructionList& network, ValueId id) {
  return id != kNoValue && network.values[static_cast<size_t>(id)].home == Home::kActivations;
}

int storage_of(const InstructionList& network, ValueId id) {
  return network.values[static_cast<size_t>(id)].storage;
}

// Follows the contents of all storages through the network.
class TransferFinder {
 public:
  explicit TransferFinder(const InstructionList& network)
      : network_(network), holders_(network.values.size()) {}

  // Returns the transfers in a deterministic order, each one once. Throws Error if a stage would
  // have to send something in the direction opposite to that of the pass.
  std::vector<Transfer> find(std::span<const int> stage_of_instruction) {
    for (size_t i = 0; i < network_.instructions.size(); ++i) {
      const Instruction& instruction = network_.instructions[i];
      const int stage = stage_of_instruction[i];
      for (const ValueId arg : instruction.args) {
        if (is_activation(network_, arg)) read(storage_of(network_, arg), stage, i);
      }
      for (size_t a = 0; a < instruction.args.size(); ++a) {
        const ValueId arg = instruction.args[a];
        if (!is_activation(network_, arg) || !instruction.writes(static_cast<int>(a))) continue;
        holders_[static_cast<size_t>(storage_of(network_, arg))] = {stage, stage};
      }
    }
    return std::move(transfers_);
  }

 private:
  void read(int storage, int stage, size_t instruction) {
    Holders& holders = holders_[static_cast<size_t>(storage)];
    if (holders.first < 0) return;  // written by this instruction for the first time
    while (stage > holders.last) send(storage, holders.last, holders.last + 1, instruction);
    while (stage < holders.first) send(storage, holders.first, holders.first - 1, instruction);
  }

  void send(int storage, int from, int to, size_t instruction) {
    const bool forward = instruction < network_.forward;
    // What the forward pass has written may be sent forward although only the backward pass reads
    // it.
    const bool allowed = to > from ? forward || !written_backward(storage) : !forward;
    const Transfer transfer{storage, from, to};
    if (!allowed || std::ranges::find(transfers_, transfer) != transfers_.end()) {
      throw Error("the network cannot be cut between these layers");
    }
    transfers_.push_back(transfer);
    Holders& holders = holders_[static_cast<size_t>(storage)];
    (to > from ? holders.last : holders.first) = to;
  }

  bool written_backward(int storage) const {
    for (size_t i = network_.forward; i < network_.instructions.size(); ++i) {
      const Instruction& instruction = network_.instructions[i];
      for (size_t a = 0; a < instruction.args.size(); ++a) {
        if (is_activation(network_, instruction.args[a]) &&
            storage_of(network_, instruction.args[a]) == storage &&
            instruction.writes(static_cast<int>(a))) {
          return true;
        }
      }
    }
    return false;
  }

  const InstructionList& network_;
  std::vector<Holders> holders_;  // by storage
  std::vector<Transfer> transfers_;
};

std::vector<int> stages_of(const InstructionList& network, std::span<const int> begins) {
  std::vector<int> stages;
  for (const Instruction& instruction : network.instructions) {
    stages.push_back(stage_of(instruction.node, begins));
  }
  return stages;
}

// Returns the value of this storage that is the largest, which spans all of it.
const Value& largest_value(const InstructionList& network, int storage) {
  const Value* largest = nullptr;
  for (const Value& value : network.values) {
    if (value.home != Home::kActivations || value.storage != storage) continue;
    if (!largest || value.spec.bytes() > largest->spec.bytes()) largest = &value;
  }
  return *largest;
}

// The four ports of a stage, and what is transferred through them.
class StagePorts {
 public:
  StagePorts(const InstructionList& network, std::span<const Transfer> transfers, int stage)
      : network_(network) {
    for (const Transfer& transfer : transfers) {
      if (transfer.to == stage) {
        add(transfer.from < stage ? Port::kStageInput : Port::kStageOutputGradient, transfer);
      }
    }
    for (const Transfer& transfer : transfers) {
      if (transfer.from == stage) {
        add(transfer.to > stage ? Port::kStageOutput : Port::kStageInputGradient, transfer);
      }
    }
  }

  // A value that has its memory in a port.
  struct Place {
    Port port{};
    size_t offset = 0;
  };
  // Returns where instructions of the stage find the storage; null if it is not transferred.
  const Place* home(int storage) const {
    const auto found = homes_.find(storage);
    return found == homes_.end() ? nullptr : &found->second;
  }
  struct Copy {
    int storage;
    Place to;
  };
  // Returns what is sent to another stage from the memory of another port.
  std::span<const Copy> copies() const { return copies_; }
  const std::array<size_t, kPorts>& bytes() const { return bytes_; }

 private:
  void add(Port port, const Transfer& transfer) {
    size_t& end = bytes_[static_cast<size_t>(port)];
    const Place place{port, end};
    end += device_aligned(largest_value(network_, transfer.storage).spec.bytes());
    const auto [found, is_new] = homes_.try_emplace(transfer.storage, place);
    if (is_new) return;
    // A storage that is received in both passes would have to be in two places.
    if (port == Port::kStageOutputGradient) {
      throw Error("the network cannot be cut between these layers");
    }
    copies_.push_back({transfer.storage, place});
  }

  const InstructionList& network_;
  std::map<int, Place> homes_;  // by storage
  std::vector<Copy> copies_;
  std::array<size_t, kPorts> bytes_{};
};

void move_to_ports(InstructionList& network, const StagePorts& ports, ops::Backend& backend) {
  std::vector<Instruction> after_forward, after_backward;
  for (const StagePorts::Copy& copy : ports.copies()) {
    const TensorSpec spec = largest_value(network, copy.storage).spec;
    const StagePorts::Place& from = *ports.home(copy.storage);
    std::vector<ValueId> args;
    for (const StagePorts::Place& place : {from, copy.to}) {
      args.push_back(static_cast<ValueId>(network.values.size()));
      network.values.push_back({.spec = spec,
                                .home = Home::kPort,
                                .index = static_cast<int>(place.port),
                                .offset = place.offset});
    }
    auto& instructions = copy.to.port == Port::kStageOutput ? after_forward : after_backward;
    instructions.push_back({.op = ops::Reorder{},
                            .plan = backend.plan(ops::Reorder{}, std::array{spec, spec}),
                            .args = std::move(args)});
  }
  for (Value& value : network.values) {
    if (value.home != Home::kActivations) continue;
    const StagePorts::Place* place = ports.home(value.storage);
    if (!place) continue;
    value.home = Home::kPort;
    value.index = static_cast<int>(place->port);
    value.offset = place->offset;
  }
  network.instructions.insert(
      network.instructions.begin() + static_cast<ptrdiff_t>(network.forward), after_forward.begin(),
      after_forward.end());
  network.forward += after_forward.size();
  network.instructions.insert(network.instructions.end(), after_backward.begin(),
                              after_backward.end());
}

void keep_instructions(InstructionList& network, std::span<const int> stages, int stage) {
  std::vector<Instruction> kept;
  size_t forward = 0;
  for (size_t i = 0; i < network.instructions.size(); ++i) {
    if (stages[i] != stage) continue;
    kept.push_back(std::move(network.instructions[i]));
    if (i < network.forward) ++forward;
  }
  network.instructions = std::move(kept);
  network.forward = forward;
}

// Removes values that no instruction uses.
void keep_used_values(InstructionList& network) {
  std::vector<ValueId> new_ids(network.values.size(), kNoValue);
  std::map<int, int> new_storages;
  std::vector<Value> kept;
  for (Instruction& instruction : network.instructions) {
    for (ValueId& arg : instruction.args) {
      if (arg == kNoValue) continue;
      ValueId& id = new_ids[static_cast<size_t>(arg)];
      if (id == kNoValue) {
        id = static_cast<ValueId>(kept.size());
        Value value = std::move(network.values[static_cast<size_t>(arg)]);
        value.storage =
            new_storages.try_emplace(value.storage, static_cast<int>(new_storages.size()))
                .first->second;
        kept.push_back(std::move(value));
      }
      arg = id;
    }
  }
  network.values = std::move(kept);
}

size_t bytes_of(const InstructionList& network, std::span<const Transfer> transfers, bool forward) {
  size_t bytes = 0;
  for (const Transfer& transfer : transfers) {
    if ((transfer.to > transfer.from) != forward) continue;
    bytes += device_aligned(largest_value(network, transfer.storage).spec.bytes());
  }
  return bytes;
}

}  // namespace

int stage_of(int node, std::span<const int> begins) {
  return static_cast<int>(std::ranges::upper_bound(begins, node) - begins.begin());
}

std::array<size_t, kPorts> keep_stage(InstructionList& network, const Stage& stage,
                                      ops::Backend& backend) {
  const std::vector<int> stages = stages_of(network, stage.begins);
  const std::vector<Transfer> transfers = TransferFinder(network).find(stages);
  const StagePorts ports(network, transfers, stage.index);
  keep_instructions(network, stages, stage.index);
  move_to_ports(network, ports, backend);
  keep_used_values(network);
  return ports.bytes();
}

std::vector<Cut> possible_cuts(const InstructionList& network, size_t nodes) {
  std::vector<Cut> cuts;
  for (int node = 1; node < static_cast<int>(nodes); ++node) {
    const std::vector<int> stages = stages_of(network, std::array{node});
    const auto forward = std::span(stages).first(network.forward);
    if (std::ranges::count(forward, 0) == 0 || std::ranges::count(forward, 1) == 0) continue;
    try {
      const std::vector<Transfer> transfers = TransferFinder(network).find(stages);
      const StagePorts first(network, transfers, 0), second(network, transfers, 1);
      cuts.push_back({node, bytes_of(network, transfers, /*forward=*/true),
                      bytes_of(network, transfers, /*forward=*/false)});
    } catch (const Error&) {
      // Some places do not qualify.
    }
  }
  return cuts;
}

}  // namespace trireme::model
