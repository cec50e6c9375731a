#include "comm/world.h"

#include <fmt/format.h>

#include "comm/mpi/session.h"
#include "comm/watchdog/init_guard.h"
#include "core/fault_point.h"

namespace trireme::comm {
namespace {

// Throws because this process sees only `found` of the ranks that the launcher started.
[[noreturn]] void throw_ranks_missing(const Launcher& launcher, int found) {
  std::string change;
  if (launcher.name == "srun") {
    change = "start them with `srun --mpi=pmix` (`srun --mpi=list` shows what this Slurm offers)";
  } else if (launcher.name == "mpirun") {
    change =
        "use the mpirun that belongs to the linked MPI library (same installation, same version)";
  } else {
    change = "this program needs the mpirun of the linked MPI library";
  }
  const std::string world = found == 1
                                ? "MPI gives each of them a world size of 1"
                                : fmt::format("MPI gives this one a world size of {}", found);
  throw ConfigError(fmt::format("{} started {} ranks, but {}: {}; linked: {}", launcher.name,
                                launcher.ranks, world, change, mpi_version()));
}

}  // namespace

struct World::Session : mpi::Session {
  using mpi::Session::Session;
};

World::World(double init_timeout, std::function<void(const std::string& message)> report_late)
    : launcher_(detect_launcher()) {
  if (launcher_.ranks <= 1) {
    communicator_ = create_local_communicator();
    watchdog_ = std::make_unique<Watchdog>(*communicator_);
    return;
  }
  // Without PMIx, MPI_Init under a launcher ends the process with a message about MPI's own build.
  if (!launcher_.pmix) throw_ranks_missing(launcher_, 1);
  const InitGuard guard(launcher_, init_timeout, std::move(report_late));
  fault_point("mpi");
  session_ = std::make_unique<Session>(launcher_.one_host);
  // More ranks are fine: each component of a heterogeneous Slurm job counts only its own.
  if (session_->ranks() < launcher_.ranks) throw_ranks_missing(launcher_, session_->ranks());
  communicator_ = mpi::create_communicator();
  fault_point("after_mpi");
  watchdog_ = std::make_unique<Watchdog>(*communicator_);
}

World::~World() {
  // Destroying an MPI communicator is collective, and the other ranks may not take part.
  if (session_) static_cast<void>(communicator_.release());
}

void World::finalize() {
  watchdog_->finish();
  watchdog_.reset();
  communicator_.reset();
  if (session_) session_->finalize();
  session_.reset();
}

std::string mpi_version() { return mpi::library_version(); }

}  // namespace trireme::comm
