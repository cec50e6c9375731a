// What a rank needs in memory, and whether there is room for it, before any of it is allocated.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/device.h"
#include "model/program.h"
#include "model/size.h"
#include "trainer/config/config.h"
#include "trainer/step/batch_plan.h"

namespace trireme::train {

struct RankMemory {
  enum class Cause { kParameters, kActivations, kBatches };  // what it grows with
  struct Part {
    std::string name;  // for people
    size_t bytes = 0;
    Cause cause = Cause::kParameters;
  };
  std::vector<Part> parts;  // none has 0 bytes
  model::NetworkSize network;
  bool least = false;  // a lower bound, since nothing is planned yet

  size_t total() const;
  size_t of(Cause cause) const;
};

// From shapes alone. Throws ConfigError, placed in the configuration file, where they are absurd.
RankMemory least_memory(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                        DeviceKind kind);
// Of a compiled network, with memory for `batches` whole batches.
RankMemory planned_memory(const Config& config, const model::Graph& graph, const BatchPlan& batch,
                          DeviceKind kind, const model::Parameters& parameters,
                          const model::Program& program, int batches);

// Where the ranks of this host put what they compute with.
struct Room {
  size_t bytes = 0;  // 0: not known
  std::string name;  // "this host has"
};
Room room_of(Device& device);

// Throws ConfigError, which says what to change, when so many ranks that share the room need more.
void require_room(const Config& config, const RankMemory& memory, const Room& room, int ranks);

}  // namespace trireme::train
