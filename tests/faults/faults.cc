#include "tests/faults/faults.h"

#include <chrono>
#include <cstdlib>
#include <sstream>
#include <thread>

namespace trireme::testing {

namespace fs = std::filesystem;

std::vector<pid_t> processes_of(const fs::path& run_dir) {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    // The command line of a zombie is empty.
    if (read_file(entry.path() / "cmdline").find(run_dir.string()) == std::string::npos) continue;
    found.push_back(std::stoi(name));
  }
  return found;
}

std::vector<std::string> lines_with(const std::string& text, const std::string& fragment) {
  std::vector<std::string> found;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find(fragment) != std::string::npos) found.push_back(line);
  }
  return found;
}

namespace {
std::string more_fields() {
  const char* more = std::getenv("TRIREME_FAULTS_CONFIG");
  return more ? more : "";
}
}  // namespace

std::string FaultTest::write_config(const std::string& text) const {
  return scratch_.write("run.txtpb", text + more_fields());
}

bool FaultTest::is_sharded() { return more_fields().find("shard:") != std::string::npos; }

std::vector<std::string> FaultTest::train(const std::vector<std::string>& more) const {
  std::vector<std::string> arguments = {"train", config_, "--run-dir", run_dir().string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

Outcome FaultTest::broken(const std::string& faults, int ranks,
                          const std::vector<std::string>& more) {
  const fs::path struck = scratch_ / "struck";
  fs::remove(struck);
  Outcome outcome = run(train(more), ranks,
                        {"TRIREME_INJECT=" + faults, "TRIREME_INJECT_STRUCK=" + struck.string()});
  const auto end = fs::file_time_type::clock::now();
  if (!fs::exists(struck)) {
    ADD_FAILURE() << "no fault struck: " << faults << "\n" << outcome.error;
    return outcome;
  }
  outcome.seconds = std::chrono::duration<double>(end - fs::last_write_time(struck)).count();
  return outcome;
}

void FaultTest::expect_none_left() const {
  // The launcher has ended; processes that it killed may take a moment to disappear.
  for (int i = 0; i < 200 && !processes_of(run_dir()).empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_TRUE(processes_of(run_dir()).empty());
}

void FaultTest::expect_same_diagnosis(const Outcome& outcome, double seconds,
                                      const std::vector<std::string>& fragments,
                                      const std::vector<int>& logs) const {
  EXPECT_NE(outcome.code, 0) << outcome.out;
  EXPECT_LT(outcome.seconds, seconds * kSlowdown) << outcome.error;
  expect_none_left();
  std::vector<std::string> diagnoses = lines_with(outcome.error, "trireme: ");
  // A crashing process prints a line of its own before the diagnosis.
  std::erase_if(diagnoses, [](const std::string& line) { return line.ends_with("; backtrace:"); });
  ASSERT_FALSE(diagnoses.empty()) << outcome.error << outcome.out;
  for (const std::string& diagnosis : diagnoses) EXPECT_EQ(diagnosis, diagnoses[0]);
  for (const std::string& fragment : fragments) {
    EXPECT_NE(diagnoses[0].find(fragment), std::string::npos) << fragment << " in\n"
                                                              << outcome.error;
  }
  for (const int rank : logs) {
    const std::string log =
        read_file(run_dir() / "log" / ("rank-" + std::to_string(rank) + ".log"));
    EXPECT_NE(log.find(diagnoses[0].substr(std::string("trireme: ").size())), std::string::npos)
        << "rank " << rank << ":\n"
        << log;
  }
}

}  // namespace trireme::testing
