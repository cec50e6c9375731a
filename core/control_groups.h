// The control groups (cgroups, version 1 or 2) of this process, which limit the memory and cores
// of a container or a batch job. A group is limited by its ancestors, too.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

class ControlGroups {
 public:
  // Those of this process.
  ControlGroups();
  // `membership` is the content of /proc/self/cgroup, and `root` is /sys/fs/cgroup.
  ControlGroups(std::filesystem::path root, std::string membership)
      : root_(std::move(root)), membership_(std::move(membership)) {}

  // Returns the smallest memory limit in bytes of the groups and their ancestors; nullopt if there
  // is none.
  std::optional<int64_t> memory_limit() const;

  // How much processor time all processes of a group and its descendants may use.
  struct CpuQuota {
    std::string group;  // identifies the group on its host
    double cores = 0;   // seconds of processor time per second
  };
  // Returns the quotas of the groups and their ancestors.
  std::vector<CpuQuota> cpu_quotas() const;

 private:
  // Calls f with the folder of each group and ancestor of the controller. A file of version 2 is
  // there if `unified`.
  void each(const std::string& controller,
            const std::function<void(const std::filesystem::path& folder, bool unified)>& f) const;

  std::filesystem::path root_;
  std::string membership_;
};

// Returns the smallest CPU quota of this process in cores; nullopt if there is none.
std::optional<double> min_cpu_quota();
// Returns the number of threads of this process that can run at once, by its affinity mask and CPU
// quotas; at least 1.
int usable_cores();

}  // namespace trireme
