// Started by world_test under mpirun: ends in the way that its argument says.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>

#include "comm/control.h"
#include "comm/world.h"

namespace trireme::comm {
namespace {

void work(const std::string& ending, Communicator& communicator) {
  const auto device = create_cpu_device(1);
  const auto stream = device->create_stream(StreamKind::kCompute);
  const Buffer buffer = communicator.allocate(1 << 20);
  const auto part = communicator.split(0, communicator.rank());
  const bool chosen = communicator.rank() == 1;
  for (int step = 0; step < 10; ++step) {
    if (step == 5) {
      if (ending == "agreed") {
        together(communicator, [&] {
          if (chosen) throw DataError("shard-1.tar", "record 5 is cut short");
        });
      }
      if (chosen && ending == "throw") throw DataError("shard-1.tar", "record 5 is cut short");
      if (chosen && ending == "exit") std::_Exit(0);
      if (chosen && ending == "kill") kill(getpid(), SIGKILL);
      if (chosen && ending == "mismatch") buffer.as<float>()[0] = 0;
    }
    const bool off = step == 5 && chosen && ending == "mismatch";
    communicator.all_reduce_sum(buffer.data(), off ? 50'000 : 100'000, DType::kF32, *stream);
  }
  if (communicator.rank() == 0) std::printf("summed on %d ranks\n", communicator.size());
}

int run(const std::string& ending) {
  World world;
  try {
    work(ending, world.communicator());
    if (ending == "forget") return 0;
    world.finalize();
    return 0;
  } catch (const AgreedError& error) {
    if (world.communicator().rank() == 0) std::fprintf(stderr, "%s\n", error.what());
    world.finalize();
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    const bool caused_by_peer = dynamic_cast<const CommError*>(&error) != nullptr;
    world.watchdog().fail(error.what(), static_cast<int>(error.code()), caused_by_peer);
  }
}

}  // namespace
}  // namespace trireme::comm

int main(int argc, char** argv) {
  try {
    return trireme::comm::run(argc > 1 ? argv[1] : "well");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
