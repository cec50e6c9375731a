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

nlohmann::ordered_json rank_properties(const comm::Communicator& communicator,
                                       const Device& device) {
  const Machine machine = inspect_machine();
  return {{"host", communicator.placement().host_name},
          {"cpu", machine.cpu},
          {"cores", machine.cores},
          {"memory_bytes", machine.memory},
          {"device", device.description()}};
}

// Groups the properties of the ranks by host. Ranks of one host may share cores or be bound to
// separate ones, so a host's `cores` is the maximum that any one of its ranks may use.
nlohmann::ordered_json hosts_of(const std::vector<std::string>& ranks, bool gpus) {
  nlohmann::ordered_json hosts = nlohmann::ordered_json::array();
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const nlohmann::ordered_json properties = nlohmann::ordered_json::parse(ranks[rank]);
    auto host = std::find_if(hosts.begin(), hosts.end(), [&](const nlohmann::ordered_json& other) {
      return other["name"] == properties["host"];
    });
    if (host == hosts.end()) {
      hosts.push_back({{"name", properties["host"]},
                       {"ranks", nlohmann::ordered_json::array()},
                       {"cpu", properties["cpu"]},
                       {"cores", 0},
                       {"memory_bytes", properties["memory_bytes"]},
                       {"gpus", nlohmann::ordered_json::array()}});
      host = std::prev(hosts.end());
    }
    (*host)["ranks"].push_back(rank);
    (*host)["cores"] = std::max((*host)["cores"].get<int>(), properties["cores"].get<int>());
    if (gpus) (*host)["gpus"].push_back(properties["device"]);
  }
  return hosts;
}

// Versions of the libraries in use. CUDA libraries are queried only on a CUDA device, because the
// query loads them.
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
  const auto ranks = all_gather(communicator, json_text(rank_properties(communicator, device)));
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
