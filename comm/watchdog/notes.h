// Notes that the ranks of a host leave for one another while nothing else connects them: symbolic
// links in shared memory, which come into being whole, and whose targets say which process it is.
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
  kUnseen,  // it lives, or lived, where processes are numbered in another way
};

// A process, told apart from later ones of the same number.
struct Process {
  pid_t pid = 0;
  uint64_t started = 0;  // clock ticks since the machine started
  uint64_t pid_namespace = 0;
};
Process this_process();
ProcessState state_of(const Process& process);

struct Note {
  int rank = 0;
  Process process;
  ProcessState state = ProcessState::kDead;
  bool gave_up = false;
};

// The notes of one run. Trouble with the files is no trouble for the run: what cannot be written or
// read is not there.
class Notes {
 public:
  // `run`: what the launcher calls it. Removes what dead runs have left.
  explicit Notes(const std::string& run);

  void leave(int rank) const;
  // In place of the note that was left: this rank waits no longer, and has said why.
  void give_up(int rank) const;
  void remove(int rank) const;
  // In the order of the ranks.
  std::vector<Note> read() const;

 private:
  void remove_dead_runs() const;
  void write(int rank, const std::string& suffix) const;
  std::string path(int rank) const;

  std::string folder_;
  std::string mine_;  // how the names of this user's notes begin
  std::string ours_;  // of this run's
  uint64_t launched_;
};

}  // namespace trireme::comm
