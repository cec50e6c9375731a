// A named range on the timeline of a GPU profiler (NVTX, for Nsight Systems), from construction to
// destruction. Costs almost nothing if no profiler is attached.
#pragma once

namespace trireme {

class ProfileRange {
 public:
  explicit ProfileRange(const char* name);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;
};

}  // namespace trireme
