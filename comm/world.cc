#include "comm/world.h"

#include <fmt/format.h>

#include "comm/mpi/session.h"

namespace trireme {
namespace {

[[noreturn]] void refuse(const Launcher& launcher) {
  std::string change;
  if (launcher.name == "srun") {
    change = "start them with `srun --mpi=pmix` (`srun --mpi=list` shows what this Slurm offers)";
  } else if (launcher.name == "mpirun") {
    change =
        "use the mpirun that belongs to the linked MPI library (same installation, same version)";
  } else {
    change = "this program needs the mpirun of the linked MPI library";
  }
  throw ConfigError(
      fmt::format("{} started {} ranks, but each of them would be a world of one: {}; linked: {}",
                  launcher.name, launcher.ranks, change, mpi_version()));
}

}  // namespace

struct World::Session : mpi::Session {
  using mpi::Session::Session;
};

World::World() : launcher_(detect_launcher()) {
  if (launcher_.ranks <= 1) {
    communicator_ = create_local_communicator();
    return;
  }
  // Without PMIx, MPI_Init under a launcher ends the process with a message about MPI's own build.
  if (!launcher_.pmix) refuse(launcher_);
  session_ = std::make_unique<Session>(launcher_.one_host);
  if (session_->ranks() == 1) refuse(launcher_);
  communicator_ = mpi::create_communicator();
}

World::~World() {
  // Letting go of an MPI communicator takes all ranks, and they may not come.
  if (session_) static_cast<void>(communicator_.release());
}

void World::finalize() {
  communicator_.reset();
  if (session_) session_->finalize();
  session_.reset();
}

std::string mpi_version() { return mpi::library_version(); }

}  // namespace trireme
