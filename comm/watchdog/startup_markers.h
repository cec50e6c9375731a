// Files with which the ranks of a host detect each other during startup, before MPI connects them.
// A marker is a symbolic link in shared memory, because links are created atomically; its target
// identifies the process of the rank.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::comm {

enum class ProcessState {
  kRunning,
  kStopped,
  kDead,
  kUnseen,  // unknown, because the process is in another PID namespace
};

// Identifies a process even after its pid has been reused.
struct Process {
  pid_t pid = 0;
  uint64_t started = 0;  // clock ticks since the machine started
  uint64_t pid_namespace = 0;
};
Process this_process();
ProcessState state_of(const Process& process);

struct StartupMarker {
  int rank = 0;
  Process process;
  ProcessState state = ProcessState::kDead;
  bool abandoned = false;  // the rank has given up waiting, and a message was printed
};

// The markers of one run. Markers are best effort: files that cannot be written or read, or that
// belong to another user, are treated as missing, and no function throws because of them.
class StartupMarkers {
 public:
  // `run` is the name that the launcher gives the run, which has `ranks` ranks. Removes the markers
  // of runs that have died.
  StartupMarkers(const std::string& run, int ranks);

  // Creates the marker of a rank for this process.
  void add(int rank) const;
  // Replaces it with one that has `abandoned` set.
  void abandon(int rank) const;
  void remove(int rank) const;
  // Returns the markers of this run, by rank.
  std::vector<StartupMarker> read() const;

 private:
  void remove_dead_runs() const;
  void write(int rank, const std::string& suffix) const;
  std::string path(int rank) const;

  int ranks_;
  std::string folder_;
  std::string user_prefix_;  // common prefix of the names of this user's markers
  std::string run_prefix_;   // common prefix of the names of this run's markers
  uint64_t launched_;        // start time of the launcher
};

}  // namespace trireme::comm
