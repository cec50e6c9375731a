#include "core/memory_limit.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>

#include "core/control_groups.h"
#include "core/error.h"
#include "core/text.h"

namespace trireme {
namespace {

std::string bytes_text(uint64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

}  // namespace

int64_t host_memory() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

int64_t group_memory_limit() {
  return std::min(host_memory(), ControlGroups().memory_limit().value_or(host_memory()));
}

int64_t process_memory_limit() {
  int64_t limit = group_memory_limit();
  rlimit address_space{};
  if (getrlimit(RLIMIT_AS, &address_space) == 0 &&
      address_space.rlim_cur < static_cast<rlim_t>(limit)) {
    limit = static_cast<int64_t>(address_space.rlim_cur);
  }
  return limit;
}

void require_fits_memory(const std::string& path, uint64_t bytes, const char* source) {
  constexpr uint64_t kAlwaysFits = 1 << 24;  // finding the limit takes longer than a small file
  if (bytes <= kAlwaysFits) return;
  const auto limit = static_cast<uint64_t>(process_memory_limit());
  if (bytes <= limit) return;
  const bool limited = limit < static_cast<uint64_t>(host_memory());
  const char* const who = limited ? ", but this process may use" : ", but the host has";
  throw DataError(path, fmt::format("has {}{}{} {} of memory", bytes_text(bytes), source, who,
                                    bytes_text(limit)));
}

void fail_out_of_memory(const std::string& path, uint64_t bytes) {
  throw DataError(path, fmt::format("has {}, and reading it needs more than the {} of memory that "
                                    "this process may use",
                                    bytes_text(bytes),
                                    bytes_text(static_cast<uint64_t>(process_memory_limit()))));
}

}  // namespace trireme
