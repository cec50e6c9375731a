// `trireme doctor`: prints what a run would use on these machines, and problems with their fixes.
#include <dnnl.h>
#include <dnnl_version.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>
#include <unistd.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "comm/control.h"
#include "comm/world.h"
#include "core/text.h"
#include "core/version.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/doctor_gpu.h"
#include "ops/backend.h"
#include "trainer/base/machine.h"
#include "trainer/config/device.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMinSharedMemory = int64_t{256} << 20;
constexpr double kMaxLoad = 0.5;  // load average per core

Json describe_rank(const comm::Placement& place, int threads) {
  const train::Machine machine = train::inspect_machine();
  return {{"rank", place.rank},
          {"host", place.host_name},
          {"pid", getpid()},
          {"version", version()},
          {"threads", threads},
          {"cores", machine.cores},
          {"affinity", machine.affinity},
          {"quota", machine.cpu_quota},
          {"online", machine.online_cores},
          {"load", machine.load},
          {"cpu", machine.cpu},
          {"isa", machine.instruction_set},
          {"memory", machine.memory},
          {"shm", machine.shared_memory},
          {"shm_free", machine.shared_memory_free},
          {"locked", machine.locked_memory},
          {"bf16", ops::cpu_computes_in(DType::kBF16)},
          {"cuda", describe_cuda()}};
}

std::string device_text(const Json& rank) {
  if (!rank.contains("gpu")) return "CPU";
  return fmt::format("GPU {} ({})", rank["gpu_id"].get<std::string>(),
                     rank["gpu"].get<std::string>());
}

std::string cores_text(const Json& rank) {
  return fmt::format("core{} {}", rank["cores"] == 1 ? "" : "s",
                     rank["affinity"].get<std::string>());
}

// Returns the values of train.precision that this rank supports.
const char* precisions_text(const Json& rank) {
  if (rank.contains("gpu")) return "FP32, TF32, BF16, FP16";
  return rank["bf16"].get<bool>() ? "FP32, BF16 (FP16 and TF32 need a GPU)"
                                  : "FP32 (BF16 needs AVX-512 or a GPU, FP16 and TF32 a GPU)";
}

void print_hosts(const Hosts& hosts) {
  for (const auto& [name, ranks] : hosts) {
    const Json& first = ranks.front();
    const int64_t locked = first["locked"];
    fmt::print("host       {}: {}, {}, {} memory\n", name, first["cpu"].get<std::string>(),
               first["isa"].get<std::string>(), format_bytes(first["memory"].get<double>()));
    fmt::print("           /dev/shm {} ({} free), locked memory {}\n",
               format_bytes(first["shm"].get<double>()),
               format_bytes(first["shm_free"].get<double>()),
               locked < 0 ? "unlimited" : "up to " + format_bytes(static_cast<double>(locked)));
    fmt::print("           load average {:.1f} on {} core{}\n", first["load"].get<double>(),
               first["online"].get<int>(), first["online"] == 1 ? "" : "s");
    fmt::print("           precisions {}\n", precisions_text(first));
    for (const Json& rank : ranks) {
      const int threads = rank["threads"];
      fmt::print("  rank {:<4} {}, {} thread{} on {}, pid {}\n", rank["rank"].get<int>(),
                 device_text(rank), threads, threads == 1 ? "" : "s", cores_text(rank),
                 rank["pid"].get<int>());
    }
  }
}

void check_host(const std::string& name, const std::vector<Json>& ranks,
                std::vector<Finding>& findings) {
  int threads = 0;
  std::map<std::string, int> sharing;  // affinity to ranks
  for (const Json& rank : ranks) {
    threads += rank["threads"].get<int>();
    ++sharing[rank["affinity"]];
  }
  const Json& first = ranks.front();
  const int online = first["online"];
  if (threads > online && first["cores"] <= online) {
    findings.push_back({fmt::format("{}: {} ranks run {} threads on {} cores; threads compete for "
                                    "cores, which makes steps "
                                    "many times slower",
                                    name, ranks.size(), threads, online),
                        "start fewer ranks, or unset OMP_NUM_THREADS and train.threads"});
  }
  for (const auto& [affinity, count] : sharing) {
    if (ranks.size() > 1 && count == 1 && affinity.find_first_of(",-") == std::string::npos) {
      findings.push_back(
          {fmt::format(
               "{}: each rank is bound to one core, which it shares with its communication thread",
               name),
           "mpirun --bind-to none, or srun --cpu-bind=none", false});
      break;
    }
  }
  const double load = first["load"];
  if (load >= kMaxLoad * online) {
    findings.push_back(
        {fmt::format(
             "{}: load average {:.1f} on {} core{}: other programs compete for the cores, and a "
             "step waits for its slowest thread",
             name, load, online, online == 1 ? "" : "s"),
         "stop them, reserve cores for the run (taskset, srun --exclusive, docker run "
         "--cpuset-cpus), or use fewer threads (train.threads)",
         false});
  }
  const double quota = first["quota"];
  if (quota > 0 && quota < threads) {
    findings.push_back(
        {fmt::format("{}: this container is limited to {:.1f} cores, but runs {} threads", name,
                     quota, threads),
         "raise the limit (docker run --cpus), or unset OMP_NUM_THREADS and train.threads"});
  }
  if (ranks.size() > 1 && first["shm_free"] < kMinSharedMemory) {
    findings.push_back(
        {fmt::format("{}: only {} of /dev/shm are free; ranks of a host exchange gradients there",
                     name, format_bytes(first["shm_free"].get<double>())),
         "docker run --shm-size=4g, or mount -o remount,size=4g /dev/shm"});
  }
}

std::vector<Finding> check(const Hosts& hosts) {
  std::vector<Finding> findings;
  std::set<std::string> versions;
  std::set<std::string> instruction_sets;
  for (const auto& [name, ranks] : hosts) {
    check_host(name, ranks, findings);
    for (const Json& rank : ranks) {
      versions.insert(rank["version"]);
      instruction_sets.insert(rank["isa"]);
    }
  }
  if (versions.size() > 1) {
    findings.push_back(
        {fmt::format("the ranks run different versions: {}", fmt::join(versions, ", ")),
         "install the same build on every host"});
  }
  if (instruction_sets.size() > 1) {
    findings.push_back({fmt::format("the hosts' processors differ ({}): all wait for the slowest",
                                    fmt::join(instruction_sets, ", ")),
                        "use identical hosts", false});
  }
  check_gpus(hosts, findings);
  return findings;
}

void print_software(const comm::Launcher& launcher, const Json& cuda) {
  fmt::print("trireme    {}\n", version());
  if (launcher.name == "none") {
    fmt::print(
        "launcher   none: one rank; for more, use mpirun -np N trireme ... or srun --mpi=pmix "
        "trireme ...\n");
  } else {
    fmt::print("launcher   {}, {} rank{}\n", launcher.name, launcher.ranks,
               launcher.ranks == 1 ? "" : "s");
  }
  const std::string mpi = comm::mpi_version();
  const dnnl_version_t& dnnl = *dnnl_version();
  fmt::print("libraries  {}; oneDNN {}.{}.{}; protobuf {}\n", mpi.substr(0, mpi.find(',')),
             dnnl.major, dnnl.minor, dnnl.patch,
             google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION));
  print_cuda(cuda);
  fmt::print("outputs    metrics.jsonl, TensorBoard, CSV, Prometheus, reports: all built in\n");
}

// Prints the findings and returns the exit code.
int print_findings(const std::vector<Finding>& findings) {
  bool has_problem = false;
  for (const Finding& finding : findings) {
    fmt::print("\n{}: {}\n  fix: {}\n", finding.is_problem ? "PROBLEM" : "note",
               finding.description, finding.fix);
    has_problem = has_problem || finding.is_problem;
  }
  if (findings.empty()) fmt::print("\nNo problems found.\n");
  return static_cast<int>(has_problem ? ExitCode::kFailure : ExitCode::kDone);
}

int doctor(comm::Communicator& communicator) {
  const int threads = train::default_threads(communicator);
  const auto texts =
      all_gather(communicator, describe_rank(communicator.placement(), threads).dump());
  Hosts hosts;
  for (const std::string& text : texts) {
    Json rank = Json::parse(text);
    hosts[rank["host"]].push_back(rank);
  }
  describe_gpus(hosts, communicator);
  int code = 0;
  if (communicator.rank() == 0) {
    print_software(comm::detect_launcher(), Json::parse(texts.front())["cuda"]);
    print_hosts(hosts);
    code = print_findings(check(hosts));
  }
  return std::stoi(broadcast(communicator, std::to_string(code), 0));
}

int diagnose_failed_start(const std::string& reason) {
  comm::Placement alone;
  alone.host_name = "this host";
  const Json rank = describe_rank(alone, 1);
  print_software(comm::detect_launcher(), rank["cuda"]);
  print_hosts({{alone.host_name, {rank}}});
  return print_findings({{"the ranks cannot connect to each other", reason}});
}

}  // namespace

void add_doctor(ArgumentParser app, Command& chosen) {
  ArgumentParser command =
      app.add_command("doctor", "Find problems with this machine that affect training");
  command.epilog(R"(Examples:
  trireme doctor
  mpirun -np 2 trireme doctor

It prints the hardware, libraries and devices that each rank would use. A
PROBLEM stops or greatly slows a run; a note does not.

Exit codes: 0 no problems, though there may be notes, 1 there are problems.
)");
  command.on_chosen([&chosen] {
    chosen.run = doctor;
    chosen.diagnose = diagnose_failed_start;
  });
}

}  // namespace trireme::cli
