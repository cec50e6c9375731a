#include "core/control_groups.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <utility>

#include "core/parse_number.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

std::string content_of(const fs::path& file) {
  std::ifstream stream(file);
  return {std::istreambuf_iterator<char>(stream), {}};
}

// Returns the number at the beginning of a file; nullopt if it is "max" or there is no file.
std::optional<int64_t> read_number(const fs::path& path) {
  std::ifstream file(path);
  int64_t number = 0;
  return file >> number ? std::optional(number) : std::nullopt;
}

// Returns the CPU quota of a group in cores. Version 2 has "QUOTA PERIOD" or "max PERIOD" in one
// file, in microseconds; version 1 has two files, and -1 if there is no quota.
std::optional<double> read_quota(const fs::path& group, bool unified) {
  std::optional<int64_t> quota, period;
  if (unified) {
    std::istringstream text(content_of(group / "cpu.max"));
    std::string first, second;
    text >> first >> second;
    quota = parse_number<int64_t>(first);
    period = parse_number<int64_t>(second);
  } else {
    quota = read_number(group / "cpu.cfs_quota_us");
    period = read_number(group / "cpu.cfs_period_us");
  }
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return static_cast<double>(*quota) / static_cast<double>(*period);
}

// Returns a name of the group that is the same in all containers of the host.
std::string identity_of(const fs::path& group) {
  struct stat status {};
  if (::stat(group.c_str(), &status) != 0) return group.string();
  return fmt::format("{}:{}", status.st_dev, status.st_ino);
}

}  // namespace

ControlGroups::ControlGroups() : ControlGroups("/sys/fs/cgroup", content_of("/proc/self/cgroup")) {}

void ControlGroups::each(const std::string& controller,
                         const std::function<void(const fs::path&, bool)>& f) const {
  std::istringstream lines(membership_);
  // "0::/a/b" in version 2, "5:cpu,cpuacct:/a/b" in version 1.
  for (std::string line; std::getline(lines, line);) {
    const size_t first = line.find(':');
    const size_t second = first == line.npos ? line.npos : line.find(':', first + 1);
    if (second == line.npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool unified = controllers.empty();
    if (!unified && ("," + controllers + ",").find("," + controller + ",") == line.npos) continue;
    // Controllers that are mounted together have a link of their own, but not in all containers.
    fs::path base = unified ? root_ : root_ / controller;
    if (!fs::exists(base)) base = root_ / controllers;
    // In a container the path may be that of the host, of which only the root exists.
    auto group = fs::path(line.substr(second + 1)).relative_path();
    for (;; group = group.parent_path()) {
      f(base / group, unified);
      if (group.empty()) break;
    }
  }
}

std::optional<int64_t> ControlGroups::memory_limit() const {
  std::optional<int64_t> min_limit;
  each("memory", [&](const fs::path& group, bool unified) {
    const auto limit = read_number(group / (unified ? "memory.max" : "memory.limit_in_bytes"));
    if (limit && (!min_limit || *limit < *min_limit)) min_limit = limit;
  });
  return min_limit;
}

std::vector<ControlGroups::CpuQuota> ControlGroups::cpu_quotas() const {
  std::vector<CpuQuota> quotas;
  each("cpu", [&](const fs::path& group, bool unified) {
    if (const auto cores = read_quota(group, unified)) {
      quotas.push_back({identity_of(group), *cores});
    }
  });
  return quotas;
}

std::optional<double> min_cpu_quota() {
  const auto quotas = ControlGroups().cpu_quotas();
  if (quotas.empty()) return std::nullopt;
  return std::ranges::min(quotas, {}, &ControlGroups::CpuQuota::cores).cores;
}

int usable_cores() {
  cpu_set_t cores;
  const int64_t allowed = sched_getaffinity(0, sizeof cores, &cores) == 0
                              ? CPU_COUNT(&cores)
                              : sysconf(_SC_NPROCESSORS_ONLN);
  const double usable = std::min(static_cast<double>(allowed), min_cpu_quota().value_or(1e9));
  return std::max(1, static_cast<int>(usable));
}

}  // namespace trireme
