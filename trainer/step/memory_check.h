// Refuses a run that does not fit into memory, and finds settings with which it would.
#pragma once

#include <string>

#include "trainer/step/rank_memory.h"
#include "trainer/step/training_program.h"

namespace trireme::train {

// Returns the settings closest to the configured ones with which the plan of a rank does not exceed
// the target's limit, recomputation included: "batch.micro: 4 (312 MiB per rank)", several
// separated by ", or "; "" if there are none. Compiles the network several times.
std::string settings_that_fit(const TrainingTarget& target);

// Throws a ConfigError if the ranks need more than the budget, or a rank more than
// memory.limit_bytes. It names settings that would fit, otherwise what takes most memory.
void require_fits(const TrainingTarget& target, const RankMemory& memory,
                  const MemoryBudget& budget);

}  // namespace trireme::train
