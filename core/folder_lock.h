// Locks a folder that only one process may write to: a run's, or that of packed samples.
#pragma once

#include <filesystem>
#include <string>

#include "core/descriptor.h"

namespace trireme {

// An exclusive lock on a folder (flock on FOLDER/.lock, which names the holder). The kernel
// releases it when the process ends.
class FolderLock {
 public:
  // Waits up to three seconds for another process to release the lock. Throws Error naming the
  // holder. `kind` is what the folder is for, and `remedy` what to do instead of waiting, both for
  // the message: "run folder", "choose another with --run-dir".
  FolderLock(const std::filesystem::path& folder, const std::string& kind,
             const std::string& remedy);

  // Returns why the folder could not be locked; empty if it is locked.
  const std::string& problem() const { return problem_; }
  // Returns false if the folder no longer contains the locked file. This is the case if the folder
  // has been removed, emptied, moved or replaced; a second process could then use the path.
  bool holds() const;

 private:
  std::filesystem::path path_;  // path of the lock file
  Descriptor file_;
  std::string problem_;
};

}  // namespace trireme
