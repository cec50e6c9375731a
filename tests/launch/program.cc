#include "tests/launch/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>
#include <thread>

#include "tests/build_tree.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

fs::path make_folder() {
  std::string name = (fs::temp_directory_path() / "trireme-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("mkdtemp " + name);
  return name;
}

void send_to_file(int descriptor, const fs::path& path) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  if (file < 0 || dup2(file, descriptor) < 0) _exit(127);
}

bool injects(const std::vector<std::string>& environment) {
  return std::ranges::any_of(environment, [](const std::string& setting) {
    return setting.starts_with("TRIREME_INJECT=");
  });
}

}  // namespace

Program::Program(const std::vector<std::string>& arguments, int ranks,
                 const std::vector<std::string>& environment)
    : Program({{arguments, ranks, injects(environment)}}, environment) {}

Program::Program(const std::vector<Group>& groups, const std::vector<std::string>& environment)
    : folder_(make_folder()), started_(now()) {
  std::vector<std::string> words;
  if (groups[0].ranks > 0) {
    words = {"mpirun", "--quiet", "--oversubscribe", "--bind-to", "none"};
  }
  for (const Group& group : groups) {
    if (&group != &groups[0]) words.push_back(":");
    if (group.ranks > 0) words.insert(words.end(), {"-np", std::to_string(group.ranks)});
    words.push_back(group.faulty ? build_tree() / "tests" / "trireme-faulty"
                                 : build_tree() / "bin" / "trireme");
    words.insert(words.end(), group.arguments.begin(), group.arguments.end());
  }
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork");
  if (pid_ > 0) return;
  for (const std::string& setting : environment) {
    const size_t equals = setting.find('=');
    setenv(setting.substr(0, equals).c_str(), setting.substr(equals + 1).c_str(), 1);
  }
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  setenv("OMP_NUM_THREADS", "1", 0);
  send_to_file(STDIN_FILENO, "/dev/null");
  send_to_file(STDOUT_FILENO, folder_ / "out");
  send_to_file(STDERR_FILENO, folder_ / "error");
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(pointers[0], pointers.data());
  _exit(127);
}

Program::~Program() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
  }
  fs::remove_all(folder_);
}

void Program::signal(int number) const { kill(pid_, number); }

std::vector<pid_t> Program::children() const {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string stat = read_file(entry.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos) continue;
    std::istringstream fields(stat.substr(name_end + 1));
    std::string state;
    pid_t parent = 0;
    fields >> state >> parent;
    if (parent == pid_) found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

bool Program::running() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return !ended_;
}

Outcome Program::wait() {
  if (!ended_) waitpid(pid_, &status_, 0);
  ended_ = true;
  Outcome outcome;
  outcome.seconds = now() - started_;
  outcome.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
  outcome.out = read_file(folder_ / "out");
  outcome.error = read_file(folder_ / "error");
  return outcome;
}

Outcome run(const std::vector<std::string>& arguments, int ranks,
            const std::vector<std::string>& environment) {
  return Program(arguments, ranks, environment).wait();
}

Scratch::Scratch() : path_(make_folder()) {}
Scratch::~Scratch() { fs::remove_all(path_); }

std::string Scratch::write(const std::string& name, const std::string& text) const {
  const fs::path path = path_ / name;
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
  return path.string();
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

bool wait_for(const fs::path& path, double seconds) {
  for (const double end = now() + seconds; now() < end;) {
    if (fs::exists(path)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return false;
}

std::vector<std::string> losses_of(const fs::path& run_dir) {
  std::ifstream file(run_dir / "metrics.jsonl");
  std::map<int64_t, std::string> by_step;
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record["event"] != "step") continue;
    // The text as written, so that two runs are compared digit by digit.
    const size_t begin = line.find("\"train_loss\":") + 13;
    by_step[record["step"]] = line.substr(begin, line.find_first_of(",}", begin) - begin);
  }
  std::vector<std::string> losses;
  for (const auto& [step, loss] : by_step) losses.push_back(loss);
  return losses;
}

}  // namespace trireme::testing
