// End-to-end tests of the command line and of several commands.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "core/device.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using ::testing::Test;
using Json = nlohmann::json;

TEST(CommandLine, HelpNamesEveryCommandWithExamples) {
  const Outcome help = run({"--help"});
  EXPECT_EQ(help.code, 0);
  for (const char* word :
       {"train", "eval", "inspect", "bench", "doctor", "data", "Examples:", "Exit codes:"}) {
    EXPECT_NE(help.out.find(word), std::string::npos) << word;
  }
  EXPECT_EQ(help.error, "");
}

TEST(CommandLine, VersionIsOneLine) {
  const Outcome version = run({"--version"});
  EXPECT_EQ(version.code, 0);
  EXPECT_TRUE(version.out.starts_with("trireme ")) << version.out;
  EXPECT_EQ(version.out.find('\n'), version.out.size() - 1);
}

TEST(CommandLine, OneRankPrintsForAll) {
  const Outcome version = run({"--version"}, 2);
  EXPECT_EQ(version.code, 0);
  EXPECT_EQ(version.out.find("trireme"), version.out.rfind("trireme")) << version.out;
}

TEST(CommandLine, InvalidArgumentsExitWithCode2) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"trian"},
                                                    {"train"},
                                                    {"train", "x.txtpb", "--sett", "a=b"},
                                                    {"bench", "lenet", "--batch", "0"},
                                                    {"train", "x.txtpb", "--device", "tpu"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 2) << arguments.front();
    EXPECT_TRUE(outcome.error.starts_with("trireme: ")) << outcome.error;
  }
}

TEST(CommandLine, UnsupportedPrecisionIsAConfigurationError) {
  const Outcome outcome = run({"bench", "mlp", "--device", "cpu", "--set", "train.precision=BF16"},
                              0, {"ONEDNN_MAX_CPU_ISA=AVX2"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("train.precision: BF16 requires a CPU with AVX-512; use FP32"),
            std::string::npos)
      << outcome.error;
}

// The environment of a launcher says that there are two ranks, but they cannot find each other.
TEST(CommandLine, WorldOfOneUnderALauncherIsAnError) {
  const std::vector<std::string> launcher = {"OMPI_COMM_WORLD_SIZE=2", "OMPI_COMM_WORLD_RANK=0"};
  const Outcome outcome = run({"bench", "mlp"}, 0, launcher);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("world size of 1"), std::string::npos) << outcome.error;
  const Outcome doctor = run({"doctor"}, 0, launcher);
  EXPECT_EQ(doctor.code, 1);
  EXPECT_NE(doctor.out.find("PROBLEM"), std::string::npos) << doctor.out;
}

TEST(Inspect, PlansMemoryInBytes) {
  const Outcome lenet = run({"inspect", "lenet", "--batch", "32"});
  ASSERT_EQ(lenet.code, 0) << lenet.error;
  for (const char* word : {"32 samples per rank", "[6, 28, 28]", "61706", "gradients",
                           "optimizer state", "activations", "batches", "total"}) {
    EXPECT_NE(lenet.out.find(word), std::string::npos) << word << " in\n" << lenet.out;
  }
  const Outcome shared = run({"inspect", "lenet", "--batch", "32", "--ranks", "8"});
  EXPECT_NE(shared.out.find("each of 8 ranks"), std::string::npos) << shared.out;
  for (const char* word : {"\n  NONE ", "\n  OPTIMIZER ", "\n  GRADIENTS ", "saved", "work",
                           "added", " ms", "<- as configured"}) {
    EXPECT_NE(shared.out.find(word), std::string::npos) << word << " in\n" << shared.out;
  }
}

TEST(Inspect, MeasuresStatefulLayers) {
  const Outcome outcome =
      run({"inspect", "lstm", "--set", "model.zoo.stateful=true", "--batch", "1"});
  EXPECT_EQ(outcome.code, 0) << outcome.error;
}

TEST(Inspect, SuggestsTheNearestNetwork) {
  const Outcome outcome = run({"inspect", "resnet81"});
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("did you mean 'resnet18'"), std::string::npos) << outcome.error;
}

TEST(Bench, ReportsTheStepAndItsParts) {
  for (int ranks : {0, 2}) {
    const Outcome outcome =
        run({"bench", "lenet", "--batch", "8", "--steps", "5", "--json"}, ranks);
    ASSERT_EQ(outcome.code, 0) << outcome.error;
    const Json result = Json::parse(outcome.out);
    EXPECT_EQ(result["ranks"], ranks == 0 ? 1 : ranks);
    EXPECT_EQ(result["precision"], "FP32");
    EXPECT_EQ(result["batch_per_rank"], 8);
    EXPECT_EQ(result["steps"], 5);
    for (const char* key :
         {"samples_per_second", "step_ms", "floor_ms", "forward_ms", "backward_ms",
          "seconds_to_first_step", "peak_memory_bytes", "threads", "model_flops_utilization"}) {
      EXPECT_GT(result[key].get<double>(), 0) << key;
    }
    EXPECT_GE(result["exposed_comm_fraction"].get<double>(), 0);
    EXPECT_LT(result["exposed_comm_fraction"].get<double>(), 1);
  }
}

TEST(Bench, ReportsTheStageThatWaitsLeast) {
  const std::vector<std::string> command{"bench",   "resnet20", "--batch", "4",
                                         "--steps", "5",        "--json"};
  const Json alone = Json::parse(run(command).out);
  std::vector<std::string> in_stages = command;
  in_stages.insert(in_stages.end(), {"--set", "parallel.stages=2"});
  const Outcome outcome = run(in_stages, 2);
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const Json result = Json::parse(outcome.out);
  EXPECT_TRUE(result.contains("stage"));
  EXPECT_GE(result["idle_ms"].get<double>(), 0);
  EXPECT_EQ(result["parameters"], alone["parameters"]);
  // The batch is twice as large, and each of the two ranks computes half of it on average.
  EXPECT_NEAR(result["flops_per_step"].get<double>() / alone["flops_per_step"].get<double>(), 1,
              1e-6);
  const Outcome refused = run(in_stages);
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.error.find("2 stages need a multiple of 2 ranks"), std::string::npos);
}

TEST(Doctor, NamesRanksAndLibraries) {
  const Outcome doctor = run({"doctor"}, 2);
  for (const char* word :
       {"mpirun, 2 ranks", "oneDNN", "protobuf", "rank 0", "rank 1", "/dev/shm"}) {
    EXPECT_NE(doctor.out.find(word), std::string::npos) << word << " in\n" << doctor.out;
  }
  // A machine with fewer than two cores does have a problem with two ranks.
  EXPECT_EQ(doctor.code, doctor.out.find("PROBLEM") == std::string::npos ? 0 : 1) << doctor.out;
}

TEST(Doctor, ReportsHighLoad) {
  const Outcome doctor = run({"doctor"});
  EXPECT_EQ(doctor.code, 0) << doctor.out;
  std::smatch line;
  const std::regex words("\\n +load average ([0-9.]+) on ([0-9]+) cores?\n");
  ASSERT_TRUE(std::regex_search(doctor.out, line, words)) << doctor.out;
  const double load = std::stod(line[1]) / std::stod(line[2]);  // per core, to within 0.05
  const bool noted =
      doctor.out.find("note: ") != std::string::npos &&
      doctor.out.find(line[1].str() + " on " + line[2].str() + " core",
                      static_cast<size_t>(line.position() + line.length())) != std::string::npos;
  if (load < 0.45 || load > 0.55) {
    EXPECT_EQ(noted, load > 0.5) << doctor.out;
  }
}

// libgomp prints its settings whenever it is loaded. The last ones take effect.
TEST(OpenMp, ThreadsSpinForABoundedTime) {
  const auto spins = [](const std::string& setting) {
    const Outcome outcome = run({"zoo"}, 0, {"OMP_DISPLAY_ENV=verbose", setting});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    const std::string name = "GOMP_SPINCOUNT = '";
    const size_t at = outcome.error.rfind(name);
    if (at == std::string::npos) return std::string("none");
    return outcome.error.substr(at + name.size(),
                                outcome.error.find('\'', at + name.size()) - at - name.size());
  };
  EXPECT_EQ(spins("NONE="), std::thread::hardware_concurrency() > 1 ? "10000" : "300000");
  EXPECT_EQ(spins("GOMP_SPINCOUNT=77"), "77");
  EXPECT_EQ(spins("OMP_WAIT_POLICY=passive"), "0");
}

TEST(Doctor, AssignsGpusToRanksAndReportsSharing) {
  const int gpus = query_cuda().devices;
  if (gpus == 0) GTEST_SKIP() << query_cuda().problem;
  const Outcome doctor = run({"doctor"}, gpus + 1);
  for (int rank = 0; rank <= gpus; ++rank) {
    const std::string line = "rank " + std::to_string(rank) + "    GPU ";
    EXPECT_NE(doctor.out.find(line), std::string::npos) << line << " in\n" << doctor.out;
  }
  const std::string note = std::to_string(gpus + 1) + " ranks see " + std::to_string(gpus) + " GPU";
  EXPECT_NE(doctor.out.find(note), std::string::npos) << note << " in\n" << doctor.out;
}

}  // namespace
}  // namespace trireme::testing
