#include "trainer/config/device.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>
#include <vector>

#include "comm/control.h"
#include "core/control_groups.h"
#include "core/installation.h"
#include "trainer/base/process.h"

namespace trireme::train {
namespace {

// Returns a string with '1' for each core that this process may run on, otherwise '0'.
std::string allowed_cores() {
  std::vector<cpu_set_t> sets(16);  // 16384 cores
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
  if (threads > kMaxThreads) {
    throw ConfigError("OMP_NUM_THREADS",
                      fmt::format("{} is greater than {}", threads, kMaxThreads));
  }
  return threads;
}

// Returns the index of this rank's GPU among those that it may use, or, on all ranks, -1 for the
// CPU.
int choose_gpu(const Config& config, comm::Communicator& communicator) {
  const CudaSupport cuda = query_cuda();
  const comm::Placement& placement = communicator.placement();
  const std::string host = placement.host_name;
  const auto all = all_gather(
      communicator,
      nlohmann::json({{"host", host}, {"ids", cuda.ids}, {"problem", cuda.problem}}).dump());
  std::map<std::string, std::vector<std::vector<std::string>>> hosts;
  std::string without;  // the first rank that sees no GPU, and why
  int own = 0;
  for (int rank = 0; rank < std::ssize(all); ++rank) {
    const auto gpus = nlohmann::json::parse(all[static_cast<size_t>(rank)]);
    auto& visible = hosts[gpus["host"]];
    if (rank == placement.rank) own = static_cast<int>(visible.size());
    visible.push_back(gpus["ids"]);
    if (visible.back().empty() && without.empty()) {
      without = fmt::format("rank {} (host {}): {}", rank, gpus["host"].get<std::string>(),
                            gpus["problem"].get<std::string>());
    }
  }
  const bool required = config.run.train().device() == "cuda";
  if (!without.empty()) {
    if (!required) return -1;
    agree(communicator, std::make_exception_ptr(ConfigError(config.where("train.device"),
                                                            without + "; use cpu or auto")));
  }
  for (const auto& [name, visible] : hosts) {
    std::set<std::string> used;
    const std::vector<int> chosen = assign_devices(visible);
    for (size_t i = 0; i < visible.size(); ++i) {
      used.insert(visible[i][static_cast<size_t>(chosen[i])]);
    }
    if (used.size() < visible.size() && !required) return -1;
  }
  return assign_devices(hosts[host])[static_cast<size_t>(own)];
}

// Throws ConfigError if the CPU does not support the configured transport or precision.
void check_cpu(const Config& config) {
  if (config.run.train().transport() == "nccl") {
    throw ConfigError(config.where("train.transport"),
                      "nccl needs a GPU, but the device is the CPU; use auto or mpi");
  }
  if (ops::cpu_computes_in(compute_dtype(config))) return;
  const Precision precision = config.run.train().precision();
  const char* const why = precision == FP16 ? "is not supported on a CPU; use BF16 or FP32"
                                            : "requires a CPU with AVX-512; use FP32";
  throw ConfigError(config.where("train.precision"),
                    fmt::format("{} {}", Precision_Name(precision), why));
}

// Returns this rank's share of the cores that it may run on. All ranks must call it.
double own_share_of_cores(comm::Communicator& communicator) {
  const comm::Placement& placement = communicator.placement();
  nlohmann::json quotas = nlohmann::json::object();
  for (const ControlGroups::CpuQuota& quota : ControlGroups().cpu_quotas()) {
    quotas[quota.group] = quota.cores;
  }
  const auto texts = all_gather(communicator, nlohmann::json({{"host", placement.host_name},
                                                              {"allowed", allowed_cores()},
                                                              {"quotas", quotas}})
                                                  .dump());
  std::vector<RankCores> ranks;
  size_t own = 0;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const auto fields = nlohmann::json::parse(texts[rank]);
    if (fields["host"] != placement.host_name) continue;
    if (static_cast<int>(rank) == placement.rank) own = ranks.size();
    ranks.push_back({fields["allowed"], fields["quotas"]});
  }
  return share_of_cores(ranks, own);
}

int threads_of(double cores) {
  const int from_environment = threads_from_environment();
  return from_environment > 0 ? from_environment : std::max(1, static_cast<int>(cores));
}

}  // namespace

double share_of_cores(const std::vector<RankCores>& ranks, size_t rank) {
  const auto users_of = [&](const auto& may_use) {
    return static_cast<double>(std::max<int64_t>(1, std::ranges::count_if(ranks, may_use)));
  };
  const RankCores& own = ranks[rank];
  double share = 0;
  for (size_t core = 0; core < own.allowed.size(); ++core) {
    if (own.allowed[core] != '1') continue;
    share += 1 / users_of([&](const RankCores& other) {
               return core < other.allowed.size() && other.allowed[core] == '1';
             });
  }
  for (const auto& [group, cores] : own.quotas) {
    share = std::min(share, cores / users_of([&, &name = group](const RankCores& other) {
                              return other.quotas.contains(name);
                            }));
  }
  return share + 1e-6;  // three thirds are slightly less than 1 because of rounding
}

int default_threads(comm::Communicator& communicator, int sharing) {
  return threads_of(own_share_of_cores(communicator) / sharing);
}

int spare_cores(const Config& config, comm::Communicator& communicator, const Device& device,
                int sharing) {
  constexpr int kGpuHostThreads = 2;
  constexpr int kMax = 64;
  const double cores = own_share_of_cores(communicator) / sharing;
  const int configured = config.run.train().threads();
  const int computing = configured > 0 ? configured : threads_of(cores);
  const int taken = device.kind() == DeviceKind::kCpu ? computing : kGpuHostThreads;
  return std::clamp(static_cast<int>(cores) - taken, 1, kMax);
}

std::vector<int> assign_devices(const std::vector<std::vector<std::string>>& visible) {
  std::map<std::string, int> users;
  std::vector<int> chosen;
  for (const std::vector<std::string>& ids : visible) {
    const auto best = std::min_element(
        ids.begin(), ids.end(),
        [&](const std::string& a, const std::string& b) { return users[a] < users[b]; });
    if (best != ids.end()) ++users[*best];
    chosen.push_back(best == ids.end() ? -1 : static_cast<int>(best - ids.begin()));
  }
  return chosen;
}

std::unique_ptr<Device> create_device(const Config& config, comm::Communicator& communicator,
                                      int sharing) {
  const TrainConfig& train = config.run.train();
  const int threads =
      train.threads() > 0 ? train.threads() : default_threads(communicator, sharing);
  const int index = train.device() == "cpu" ? -1 : choose_gpu(config, communicator);
  std::unique_ptr<Device> device;
  comm::together(communicator, [&] {
    if (index >= 0) {
      device = create_cuda_device(index);
      return;
    }
    check_cpu(config);
    device = create_cpu_device(threads);
  });
  return device;
}

std::unique_ptr<ops::Backend> create_backend(const Config& config, Device& device) {
  if (device.kind() == DeviceKind::kCpu) return ops::create_cpu_backend(device);
  return ops::create_cuda_backend(
      device, {.tf32 = config.run.train().precision() == TF32, .tuning_cache = cache_folder()});
}

DType compute_dtype(const Config& config) {
  switch (config.run.train().precision()) {
    case FP32:
    case TF32:
      break;
    case BF16:
      return DType::kBF16;
    case FP16:
      return DType::kF16;
  }
  return DType::kF32;
}

comm::Transport transport_of(const Config& config) {
  const std::string& name = config.run.train().transport();
  return name == "nccl"  ? comm::Transport::kNccl
         : name == "mpi" ? comm::Transport::kMpi
                         : comm::Transport::kAuto;
}

}  // namespace trireme::train
