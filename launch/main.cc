// The `trireme` program: joins the ranks, runs one command, and turns
// whatever fails into one message and an exit code. Beside it only the watchdog (comm/watchdog.h)
// and the end of a grace (trainer/run/stop.h) print a failure and end the process.
#include <fcntl.h>
#include <signal.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "comm/control.h"
#include "comm/watchdog/init_guard.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/openmp.h"
#include "launch/command_line.h"

namespace trireme::cli {
namespace {

struct Failure {
  std::string message;
  int code = static_cast<int>(ExitCode::kFailure);
  bool from_a_peer = false;  // what another rank's end looks like from here
};

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const CommError& error) {
    return {error.what(), static_cast<int>(error.code()), true};
  } catch (const Error& error) {
    return {error.what(), static_cast<int>(error.code())};
  } catch (const std::bad_alloc&) {
    return {"out of memory; `trireme inspect` tells what a run needs"};
  } catch (const std::exception& error) {
    return {std::string("internal error: ") + error.what()};
  } catch (...) {
    return {"internal error: an exception of unknown type"};
  }
}

void print_failure(const std::string& who, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "%s: %s\n", who.c_str(), message.c_str());
  std::fflush(stderr);
}

// For the terminate handler alone, which cannot be handed anything.
comm::Watchdog* watchdog = nullptr;

// An error that only this rank has met. The others are waiting in a sum that this rank will never
// join, and so would the destructors of what the ranks share: nothing is unwound, and the watchdog
// tells and ends all ranks.
[[noreturn]] void end_all_ranks() {
  const std::exception_ptr exception = std::current_exception();
  const Failure failure = exception ? describe(exception) : Failure{"internal error: terminated"};
  if (watchdog) watchdog->fail(failure.message, failure.code, failure.from_a_peer);
  print_failure("trireme", failure.message);
  std::_Exit(failure.code);
}

// One rank: errors unwind, so that everything is put away in order.
int run_alone(const Command& command, comm::World& world) {
  try {
    const int code = command.run(world.communicator());
    world.finalize();
    return code;
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    print_failure("trireme", failure.message);
    return failure.code;
  }
}

// Every rank has this failure, and rank 0 tells it. Leaving one by one with a code would do as
// well, but an MPI launcher takes seconds longer to make sense of that than of an abort.
[[noreturn]] void end_in_agreement(const comm::AgreedError& error, comm::World& world) {
  comm::Communicator& communicator = world.communicator();
  const int code = static_cast<int>(error.code());
  world.watchdog().leave();
  if (communicator.rank() == 0) {
    print_failure("trireme", error.what());
    communicator.abort(code);
  }
  std::this_thread::sleep_for(std::chrono::seconds(5));
  std::_Exit(code);
}

// Several ranks: what they have agreed on is told by rank 0; anything else finds no handler here
// and ends in end_all_ranks, on purpose.
int run_together(const Command& command, comm::World& world) {
  watchdog = &world.watchdog();
  int code = 0;
  try {
    code = command.run(world.communicator());
  } catch (const comm::AgreedError& error) {
    end_in_agreement(error, world);
  }
  world.watchdog().leave();
  fault_point("leave");
  world.finalize();
  watchdog = nullptr;
  return code;
}

// The rank that the launcher's environment gives this process, for when the ranks could not be
// joined.
int rank_by_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

// The ranks could not be joined: each process is on its own, and one of them speaks.
int run_unjoined(const Command& command, const Failure& failure) {
  if (rank_by_environment() != 0) {
    // The first to fail may be the end of all of them.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return failure.code;
  }
  if (command.diagnose) return command.diagnose(failure.message);
  print_failure("trireme", failure.message);
  return failure.code;
}

int run(const Command& command) {
  std::set_terminate(end_all_ranks);
  fault_point("before_mpi");
  std::unique_ptr<comm::World> world;
  try {
    world = std::make_unique<comm::World>(command.init_timeout.value_or(comm::init_timeout()));
  } catch (const Error&) {
    return run_unjoined(command, describe(std::current_exception()));
  }
  return world->communicator().size() == 1 ? run_alone(command, *world)
                                           : run_together(command, *world);
}

// A run goes on when nobody reads what it prints: writing there fails, and does not kill. Where a
// standard stream is closed, no file of the run may take its number and receive what is printed.
void keep_standard_streams() {
  signal(SIGPIPE, SIG_IGN);
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) < 0) open("/dev/null", stream == STDIN_FILENO ? O_RDONLY : O_WRONLY);
  }
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  trireme::cli::keep_standard_streams();
  const trireme::cli::Command command = trireme::cli::parse_command_line(argc, argv);
  trireme::limit_openmp_spinning(argv);
  return trireme::cli::run(command);
}
