#include <cstdlib>
#include <optional>

#include "comm/world.h"
#include "core/parse_number.h"

namespace trireme::comm {
namespace {

std::optional<int> number(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? parse_number<int>(text) : std::nullopt;
}

}  // namespace

Launcher detect_launcher() {
  const bool pmix = std::getenv("PMIX_RANK") != nullptr;
  // Check mpirun before Slurm: inside a Slurm job it leaves Slurm's variables in place.
  if (const auto ranks = number("OMPI_COMM_WORLD_SIZE")) {
    return {"mpirun", *ranks, true, number("OMPI_COMM_WORLD_LOCAL_SIZE") == ranks};
  }
  // Slurm sets SLURM_NTASKS for the entire allocation and SLURM_PROCID also in a batch script. Only
  // a step started by srun has SLURM_STEP_NUM_TASKS.
  if (number("SLURM_PROCID") && number("SLURM_STEP_ID")) {
    if (const auto ranks = number("SLURM_STEP_NUM_TASKS")) {
      return {"srun", *ranks, pmix, number("SLURM_STEP_NUM_NODES") == 1};
    }
  }
  if (const auto ranks = number("PMI_SIZE"); ranks && number("PMI_RANK")) {
    return {"mpiexec", *ranks, pmix};
  }
  return {"none", 1, pmix};
}

}  // namespace trireme::comm
