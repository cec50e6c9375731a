// Runs the program as a user would and returns its results.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string>
#include <vector>

namespace trireme::testing {

struct Outcome {
  int code = -1;  // 128+n if killed by signal n
  std::string out;
  std::string error;
  double seconds = 0;
};

// A running program. The destructor kills it.
class Program {
 public:
  // Starts the program under mpirun, or without a launcher if `ranks` is 0. `environment` holds
  // NAME=VALUE; TRIREME_INJECT (tests/faults/inject.cc) selects the program that injects faults.
  Program(const std::vector<std::string>& arguments, int ranks,
          const std::vector<std::string>& environment = {});
  // Starts groups of ranks with different arguments or programs.
  struct Group {
    std::vector<std::string> arguments;
    int ranks = 1;
    bool faulty = false;  // use the program that injects faults
  };
  explicit Program(const std::vector<Group>& groups,
                   const std::vector<std::string>& environment = {});
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }  // of the launcher, if there is one
  void signal(int number) const;
  // Returns the processes started by mpirun.
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

// A temporary folder, deleted by the destructor.
class Scratch {
 public:
  Scratch();
  ~Scratch();
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }
  const std::filesystem::path& path() const { return path_; }
  // Writes a file and returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

std::string read_file(const std::filesystem::path& path);
// Waits up to `seconds` until the file exists. Returns false if it does not.
bool wait_for(const std::filesystem::path& path, double seconds);

// Returns the train_loss of each step in a run's metrics.jsonl, as written, in the order of steps.
std::vector<std::string> losses_of(const std::filesystem::path& run_dir);

}  // namespace trireme::testing
