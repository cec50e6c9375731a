#include "comm/device_communicator.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <vector>

#include "comm/control.h"
#include "comm/nccl/nccl.h"
#include "comm/staged/staged_communicator.h"

namespace trireme::comm {
namespace {

// Returns why the ranks cannot use NCCL, or an empty string if they can. Equal on all ranks.
std::string find_nccl_problem(Communicator& world, const nccl::Availability& own) {
  const std::vector<std::string> problems = all_gather(world, own.problem);
  for (size_t rank = 0; rank < problems.size(); ++rank) {
    if (!problems[rank].empty()) return fmt::format("rank {}: {}", rank, problems[rank]);
  }
  const std::string place = fmt::format("{} of {}", own.gpu, world.placement().host_name);
  std::map<std::string, int> users;
  for (const std::string& gpu : all_gather(world, place)) {
    const int rank = static_cast<int>(users.size());
    const auto [user, first] = users.emplace(gpu, rank);
    if (!first) return fmt::format("ranks {} and {} share GPU {}", user->second, rank, gpu);
  }
  return {};
}

}  // namespace

std::string why_not_nccl(Communicator& world, Device& device) {
  return find_nccl_problem(world, nccl::check_availability(device));
}

std::unique_ptr<Communicator> create_device_communicator(Communicator& world, Device& device,
                                                         Transport transport) {
  auto host = world.split(0, world.rank());
  const bool on_gpu = device.kind() == DeviceKind::kCuda;
  const bool prefer_nccl = on_gpu && world.size() > 1;
  if (transport == Transport::kNccl || (transport == Transport::kAuto && prefer_nccl)) {
    const nccl::Availability availability = nccl::check_availability(device);
    const std::string problem = find_nccl_problem(world, availability);
    if (problem.empty()) return nccl::create_communicator(availability, std::move(host), device);
    if (transport == Transport::kNccl) throw CommError("NCCL cannot be used: " + problem);
  }
  if (!on_gpu) return host;
  return create_staged_communicator(std::move(host), device);
}

}  // namespace trireme::comm
