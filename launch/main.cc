// The `trireme` program: joins the ranks, runs one command, and turns failures into one message and
// an exit code. Besides this file, only the watchdog (comm/watchdog.h) and the expiry of the grace
// period (trainer/run/stop_signals.h) print a failure and end the process.
#include <fcntl.h>
#include <malloc.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "comm/control.h"
#include "comm/ledger.h"
#include "comm/watchdog/init_guard.h"
#include "comm/watchdog/report.h"
#include "comm/world.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "core/memory_limit.h"
#include "core/openmp.h"
#include "launch/command_line.h"

namespace trireme::cli {
namespace {

struct Failure {
  std::string message;
  int code = static_cast<int>(ExitCode::kFailure);
  bool caused_by_peer = false;  // a communication error, which the failure of another rank causes
};

Failure describe(const std::exception_ptr& exception) {
  try {
    std::rethrow_exception(exception);
  } catch (const CommError& error) {
    return {error.what(), static_cast<int>(error.code()), true};
  } catch (const Error& error) {
    return {error.what(), static_cast<int>(error.code())};
  } catch (const std::filesystem::filesystem_error& error) {
    return {error.path1().string() + ": " + error.code().message()};
  } catch (const std::system_error& error) {
    if (error.code() != std::errc::resource_unavailable_try_again) {
      return {std::string("internal error: ") + error.what()};
    }
    return {
        "no thread can be started: the limit of processes (`ulimit -u`), of memory (`ulimit -v`) "
        "or of the control group (pids.max) is reached"};
  } catch (const std::bad_alloc&) {
    return {kOutOfMemory};
  } catch (const std::exception& error) {
    return {std::string("internal error: ") + error.what()};
  } catch (...) {
    return {"internal error: an exception of unknown type"};
  }
}

// Prints the message, and appends it to the log of this rank if the run has one.
void print_failure(const std::string& message, const std::filesystem::path& log = {}) {
  std::fflush(stdout);
  comm::report(message, log);
}

// A global, since the terminate handler takes no arguments. Used by nothing else.
comm::Watchdog* watchdog = nullptr;

// The terminate handler, for errors of this rank only. The other ranks are waiting in a collective
// that this rank will never join, and destructors of shared state would wait for them too. So
// nothing is unwound: the watchdog reports the error and ends all ranks.
[[noreturn]] void end_all_ranks() {
  const std::exception_ptr exception = std::current_exception();
  const Failure failure = exception ? describe(exception) : Failure{"internal error: terminated"};
  if (watchdog) watchdog->fail(failure.message, failure.code, failure.caused_by_peer);
  print_failure(failure.message);
  std::_Exit(failure.code);
}

// Runs the command on a single rank, where errors unwind the stack normally.
int run_alone(const Command& command, comm::World& world) {
  try {
    const int code = command.run(world.communicator());
    world.finalize();
    return code;
  } catch (...) {
    const Failure failure = describe(std::current_exception());
    print_failure(failure.message, world.communicator().ledger().options().log);
    return failure.code;
  }
}

// Ends all ranks after an error that all of them have; rank 0 prints it. Exiting one by one would
// also work, but MPI launchers take seconds longer to handle that than an abort.
[[noreturn]] void exit_with_agreed_error(const comm::AgreedError& error, comm::World& world) {
  comm::Communicator& communicator = world.communicator();
  const int code = static_cast<int>(error.code());
  world.watchdog().leave();
  if (communicator.rank() == 0) {
    print_failure(error.what(), communicator.ledger().options().log);
    communicator.abort(code);
  }
  std::this_thread::sleep_for(std::chrono::seconds(5));
  std::_Exit(code);
}

// Runs the command on several ranks. Any error but AgreedError is deliberately not caught here and
// ends in end_all_ranks().
int run_together(const Command& command, comm::World& world) {
  watchdog = &world.watchdog();
  int code = 0;
  try {
    code = command.run(world.communicator());
  } catch (const comm::AgreedError& error) {
    exit_with_agreed_error(error, world);
  }
  world.watchdog().leave();
  fault_point("leave");
  world.finalize();
  watchdog = nullptr;
  return code;
}

// Returns the rank in the launcher's environment variables, for use when the ranks could not be
// joined.
int rank_by_environment() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"}) {
    if (const char* value = std::getenv(name)) return std::atoi(value);
  }
  return 0;
}

// Handles the failure to join the ranks. Only rank 0 prints the message. Returns the exit code.
int handle_failed_start(const Command& command, const Failure& failure) {
  if (rank_by_environment() != 0) {
    // The launcher may kill all ranks as soon as one exits, so rank 0 gets time to print.
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    return failure.code;
  }
  if (command.diagnose) return command.diagnose(failure.message);
  print_failure(failure.message);
  return failure.code;
}

// Returns the exit code, or that of a failure if what was printed could not be written. The reader
// of a pipe may stop reading.
int checked_output(int code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  struct stat status {};
  if (fstat(STDOUT_FILENO, &status) == 0 && S_ISFIFO(status.st_mode)) return code;
  print_failure("cannot write to standard output: the disk is full or it was closed");
  return code == 0 ? static_cast<int>(ExitCode::kFailure) : code;
}

int run(const Command& command) {
  std::set_terminate(end_all_ranks);
  fault_point("before_mpi");
  std::unique_ptr<comm::World> world;
  try {
    world = std::make_unique<comm::World>(command.init_timeout.value_or(comm::init_timeout()),
                                          command.diagnose);
  } catch (const Error&) {
    return handle_failed_start(command, describe(std::current_exception()));
  }
  return world->communicator().size() == 1 ? run_alone(command, *world)
                                           : run_together(command, *world);
}

// Ignores SIGPIPE, so that a run continues if its output is no longer read, and SIGXFSZ, so that a
// file beyond the limit on file sizes is an error that names it. Opens closed standard streams, so
// that no file of the run gets their descriptors and receives printed text. Standard output is then
// opened for reading: printing to it fails, which checked_output() reports.
void open_standard_streams() {
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  for (int stream = STDIN_FILENO; stream <= STDERR_FILENO; ++stream) {
    if (fcntl(stream, F_GETFD) < 0)
      open("/dev/null", stream == STDERR_FILENO ? O_WRONLY : O_RDONLY);
  }
}

// The heap of each thread reserves 64 MiB of addresses, so with a limit of the address space
// (`ulimit -v`) threads share one.
void reserve_few_addresses() {
  rlimit addresses{};
  const bool limited = getrlimit(RLIMIT_AS, &addresses) == 0 && addresses.rlim_cur != RLIM_INFINITY;
  if (limited) mallopt(M_ARENA_MAX, 1);
}

}  // namespace
}  // namespace trireme::cli

int main(int argc, char** argv) {
  trireme::cli::open_standard_streams();
  trireme::cli::reserve_few_addresses();
  const trireme::cli::Command command = trireme::cli::parse_command_line(argc, argv);
  trireme::limit_openmp_spinning(argv);
  return trireme::cli::checked_output(trireme::cli::run(command));
}
