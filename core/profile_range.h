// A stretch of a thread's work, by name, on the timeline of a GPU's profiler (Nsight Systems). Next
// to nothing where none looks on.
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
