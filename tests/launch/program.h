// Runs the program as a user would and tells what it did.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::testing {

struct Outcome {
  int code = -1;  // 128+n when killed by signal n
  std::string out;
  std::string error;
  double seconds = 0;
};

// A started program whose output is collected in a folder of its own.
class Program {
 public:
  // ranks 0: the program alone, without a launcher; else under mpirun. `environment` holds
  // NAME=VALUE; with TRIREME_INJECT (tests/faults/inject.cc) it is the program that breaks.
  Program(const std::vector<std::string>& arguments, int ranks,
          const std::vector<std::string>& environment = {});
  // Ranks in groups that are not started alike, each of one rank or more.
  struct Group {
    std::vector<std::string> arguments;
    int ranks = 1;
    bool faulty = false;  // the program that breaks, with nothing in the environment to break it
  };
  explicit Program(const std::vector<Group>& groups,
                   const std::vector<std::string>& environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }  // of the launcher, where there is one
  void signal(int number) const;
  // The ranks that mpirun started.
  std::vector<pid_t> children() const;
  Outcome wait();
  bool running();

 private:
  std::filesystem::path folder_;
  pid_t pid_ = -1;
  int status_ = -1;
  bool ended_ = false;
  double started_ = 0;
};

Outcome run(const std::vector<std::string>& arguments, int ranks = 0,
            const std::vector<std::string>& environment = {});

// A folder that is gone when this goes.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  // Writes a file; returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);
// Waits until the file is there, at most `seconds`; false when it is not.
bool wait_for(const std::filesystem::path& path, double seconds);

// The train_loss of each step record of a run's metrics.jsonl, as written, by step.
std::vector<std::string> losses_of(const std::filesystem::path& run_dir);

}  // namespace trireme::testing
