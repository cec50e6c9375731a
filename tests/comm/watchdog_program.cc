// Started by watchdog_test under mpirun: ranks that run all-reduces until the given fault strikes
// one of them. The ranks are divided among HOSTS simulated hosts. With GROUPS, each rank sums with
// one neighbor and then with the other one; the faults "skip" (omit the sum) and "other" (broadcast
// before it) concern the first of the two sums.
//   watchdog_program HOSTS FAULT RANK [GROUPS]
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "comm/control.h"
#include "comm/mpi/session.h"
#include "comm/watchdog.h"

namespace trireme::comm {
namespace {

void sleep_long() { std::this_thread::sleep_for(std::chrono::seconds(30)); }

// Reads a mapped file that has been truncated meanwhile.
void read_truncated_file() {
  char name[] = "/tmp/trireme-mapped-XXXXXX";
  const int file = mkstemp(name);
  unlink(name);
  constexpr size_t kBytes = 1 << 16;
  if (ftruncate(file, kBytes) != 0) std::abort();
  const void* memory = mmap(nullptr, kBytes, PROT_READ, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED || ftruncate(file, 0) != 0) std::abort();
  static_cast<void>(static_cast<const volatile char*>(memory)[kBytes / 2]);
}

struct Fault {
  std::string name;
  int rank = 0;
};

// Causes the fault. Returns true if the next sum is to be skipped.
bool strike(const Fault& fault, Communicator& communicator, Watchdog& watchdog) {
  const bool chosen = communicator.rank() == fault.rank;
  const bool host_of_last = communicator.placement().host == communicator.placement().hosts - 1;
  if (fault.name == "host" && host_of_last) kill(getpid(), SIGKILL);
  if (fault.name == "freeze" && host_of_last) kill(getpid(), SIGSTOP);
  if (!chosen) return false;
  if (fault.name == "kill") kill(getpid(), SIGKILL);
  if (fault.name == "stop") kill(getpid(), SIGSTOP);
  if (fault.name == "segv" || fault.name == "limited") raise(SIGSEGV);
  if (fault.name == "truncated") read_truncated_file();
  if (fault.name == "stuck") sleep_long();
  if (fault.name == "leave") watchdog.leave(), std::_Exit(0);
  if (fault.name == "fail") watchdog.fail("shard-1.tar: record 5 is cut short", 3, false);
  return fault.name == "skip";
}

// Sums over ranks 0 and 1, 2 and 3, ... and, shifted by one, over ranks 1 and 2, 3 and 4, ...
struct Pairs {
  explicit Pairs(Communicator& world)
      : first(world.split(world.rank() / 2, world.rank())),
        second(world.split((world.rank() + 1) / 2, world.rank())) {}
  std::unique_ptr<Communicator> first, second;
};

int run(int hosts, const Fault& fault, bool grouped) {
  mpi::Session session;
  const int ranks = session.ranks();
  const int own = std::atoi(std::getenv("OMPI_COMM_WORLD_RANK"));
  auto world = mpi::create_communicator(own * hosts / ranks);
  constexpr rlimit kMemory = {uint64_t{256} << 40, RLIM_INFINITY};  // beyond what sanitizers map
  if (fault.name == "limited") setrlimit(RLIMIT_AS, &kMemory);
  {
    Watchdog watchdog(*world);
    Ledger& ledger = world->ledger();
    const char* log = std::getenv("WATCHDOG_TEST_LOG");
    ledger.configure(
        {.timeout = 1, .first_timeout = 5, .checkpoint = 5, .straggler = 0, .log = log ? log : ""});
    ledger.set_bucket_names({"fc2 ... fc1"});
    const auto device = create_cpu_device(1);
    const auto stream = device->create_stream(StreamKind::kCompute);
    float value = 1;
    try {
      std::unique_ptr<Pairs> pairs;
      if (grouped) pairs = std::make_unique<Pairs>(*world);
      Communicator& first = grouped ? *pairs->first : *world;
      for (int step = 0; step < 40; ++step) {
        ledger.enter(Phase::kForward, step);
        const bool skipped = step == 30 && strike(fault, *world, watchdog);
        if (step == 30 && fault.name == "other" && world->rank() == fault.rank) {
          first.broadcast(&value, 1, DType::kF32, 0, *stream);
        }
        if (!skipped) first.all_reduce_sum(&value, 1, DType::kF32, *stream, {.bucket = 0});
        if (grouped) pairs->second->all_reduce_sum(&value, 1, DType::kF32, *stream, {.bucket = 0});
        ledger.step_done(0.01, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
      watchdog.finish();
    } catch (const CommError& error) {
      watchdog.fail(error.what(), 1, true);
    }
  }
  if (own == 0) std::printf("done\n");
  world.reset();
  session.finalize();
  return 0;
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) {
  if (argc != 4 && argc != 5) return 2;
  return trireme::comm::run(std::atoi(argv[1]), {argv[2], std::atoi(argv[3])}, argc == 5);
}
