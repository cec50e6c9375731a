#include "trainer/device.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/control.h"

namespace trireme {
namespace {

// '1' for each core that this process may run on.
std::string allowed_cores() {
  std::vector<cpu_set_t> sets(16);  // room for 16384 cores
  const size_t bytes = sets.size() * sizeof(cpu_set_t);
  if (sched_getaffinity(0, bytes, sets.data()) != 0) {
    return std::string(std::max(1u, std::thread::hardware_concurrency()), '1');
  }
  std::string cores;
  for (size_t core = 0; core < bytes * 8; ++core) {
    cores += CPU_ISSET_S(core, bytes, sets.data()) ? '1' : '0';
  }
  return cores.substr(0, cores.rfind('1') + 1);
}

int threads_from_environment() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  int threads = 0;
  if (text) std::from_chars(text, text + std::strlen(text), threads);
  return threads;
}

}  // namespace

int default_threads(Communicator& communicator) {
  const Placement& placement = communicator.placement();
  const std::string own = allowed_cores();
  // A rank bound to cores of its own has them all; cores that several may use are divided.
  const std::vector<std::string> all = all_gather(communicator, placement.host_name + " " + own);
  double share = 0;
  for (size_t core = 0; core < own.size(); ++core) {
    if (own[core] != '1') continue;
    int users = 0;
    for (const std::string& other : all) {
      const size_t at = placement.host_name.size() + 1 + core;
      users +=
          other.starts_with(placement.host_name + " ") && at < other.size() && other[at] == '1';
    }
    share += 1.0 / std::max(1, users);
  }
  const int from_environment = threads_from_environment();
  return from_environment > 0 ? from_environment : std::max(1, static_cast<int>(share + 1e-6));
}

std::unique_ptr<Device> create_device(const Config& config, Communicator& communicator) {
  const TrainConfig& train = config.run.train();
  together(communicator, [&] {
    if (train.device() == "cuda") {
      throw ConfigError(config.where("train.device"),
                        "this program is built without CUDA; use cpu or auto");
    }
    if (train.precision() != FP32) {
      throw ConfigError(config.where("train.precision"),
                        fmt::format("{} is not available on the CPU; use FP32",
                                    Precision_Name(train.precision())));
    }
  });
  const int threads = default_threads(communicator);
  return create_cpu_device(train.threads() > 0 ? train.threads() : threads);
}

std::unique_ptr<Backend> create_backend(Device& device) { return create_cpu_backend(device); }

}  // namespace trireme
