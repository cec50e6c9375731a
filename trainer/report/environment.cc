#include "trainer/report/environment.h"

#include <dnnl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <google/protobuf/stubs/common.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <vector>

#include "comm/control.h"
#include "comm/world.h"
#include "core/version.h"
#include "trainer/base/json.h"
#include "trainer/base/machine.h"

namespace trireme::train {
namespace {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string line{std::istreambuf_iterator<char>(file), {}};
  while (!line.empty() && line.back() == '\0') line.pop_back();
  std::replace(line.begin(), line.end(), '\0', ' ');
  return line;
}

nlohmann::ordered_json rank_facts(const comm::Communicator& communicator, const Device& device) {
  const Machine machine = inspect_machine();
  return {{"host", communicator.placement().host_name},
          {"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory},
          {"device", device.description()}};
}

// Ranks of a host may be bound to cores of their own or share them, so that only the most that one
// of them may use is certain.
nlohmann::ordered_json hosts_of(const std::vector<std::string>& ranks, bool gpus) {
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const nlohmann::ordered_json facts = nlohmann::ordered_json::parse(ranks[rank]);
    auto host = std::find_if(hosts.begin(), hosts.end(), [&](const nlohmann::ordered_json& other) {
      return other["name"] == facts["host"];
    });
    if (host == hosts.end()) {
      hosts.push_back({{"name", facts["host"]},
                       {"ranks", nlohmann::ordered_json::array()},
                       {"cpu", facts["cpu"]},
                       {"cores", 0},
                       {"memory_bytes", facts["memory_bytes"]},
                       {"gpus", nlohmann::ordered_json::array()}});
      host = std::prev(hosts.end());
    }
    (*host)["ranks"].push_back(rank);
    (*host)["cores"] = std::max((*host)["cores"].get<int>(), facts["cores"].get<int>());
    if (gpus) (*host)["gpus"].push_back(facts["device"]);
  }
  return hosts;
}

// Those of CUDA are only asked for where they are in use: finding out loads them.
nlohmann::ordered_json libraries(const Device& device) {
  const dnnl_version_t& dnnl = *dnnl_version();
  nlohmann::ordered_json versions = {
      {"oneDNN", fmt::format("{}.{}.{}", dnnl.major, dnnl.minor, dnnl.patch)},
      {"protobuf", google::protobuf::internal::VersionString(GOOGLE_PROTOBUF_VERSION)}};
  if (device.kind() != DeviceKind::kCuda) return versions;
  versions["CUDA"] = query_cuda().versions;
  for (const LibraryStatus& library : cuda_libraries()) {
    if (library.problem.empty()) versions[library.name] = library.version;
  }
  return versions;
}

}  // namespace

std::string describe_environment(comm::Communicator& communicator, const Device& device) {
  const auto ranks = all_gather(communicator, json_text(rank_facts(communicator, device)));
  if (communicator.rank() != 0) return "";
  const std::string mpi = comm::mpi_version();
  const nlohmann::ordered_json environment = {
      {"command", command_line()},
      {"version", version()},
      {"started", fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)))},
      {"hosts", hosts_of(ranks, device.kind() == DeviceKind::kCuda)},
      {"libraries", libraries(device)},
      {"mpi", mpi.substr(0, mpi.find(','))}};
  return json_text(environment, 2) + "\n";
}

}  // namespace trireme::train
