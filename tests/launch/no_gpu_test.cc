// A build with CUDA on machines without a usable GPU: without a driver (CUDA runtime error 35),
// with a driver that is too old (35), and with a driver that finds no GPU (100).
#include <gtest/gtest.h>

#include <filesystem>

#include "core/device.h"
#include "tests/build_tree.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

constexpr const char* kConfig = R"(
model { zoo { name: "mlp" hidden: 8 } }
data { synthetic { shape: [4] classes: 3 count: 16 eval_count: 4 } }
batch { global: 4 }
train { epochs: 1 }
schedule { learning_rate: 0.1 }
)";

struct Machine {
  std::string name;
  std::string driver;  // the CUDA version that the driver supports; empty if none is installed
  std::string reason;
};

void PrintTo(const Machine& machine, std::ostream* out) { *out << machine.name; }

class NoGpu : public ::testing::TestWithParam<Machine> {
 protected:
  void SetUp() override {
    if (!GetParam().driver.empty()) {
      const std::string folder = build_tree() / "tests" / "driver_without_gpu";
      ASSERT_TRUE(std::filesystem::exists(folder + "/libcuda.so.1"));
      environment_ = {"LD_LIBRARY_PATH=" + folder, "TRIREME_TEST_DRIVER=" + GetParam().driver};
    } else if (query_cuda().devices > 0) {
      GTEST_SKIP() << "this machine has a driver";
    }
  }

  Outcome train(const std::string& device, int ranks) {
    return run({"train", scratch_.write("run.txtpb", kConfig), "--device", device, "--run-dir",
                (scratch_ / ("run" + std::to_string(ranks))).string()},
               ranks, environment_);
  }

  Scratch scratch_;
  std::vector<std::string> environment_;
};

TEST_P(NoGpu, AutoTrainsOnTheCpu) {
  for (int ranks : {0, 2}) {
    const Outcome outcome = train("auto", ranks);
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_NE(outcome.out.find("1 thread"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.error, "");
  }
}

TEST_P(NoGpu, CudaFailsImmediately) {
  for (int ranks : {0, 2}) {
    const Outcome outcome = train("cuda", ranks);
    EXPECT_EQ(outcome.code, 2);
    EXPECT_LT(outcome.seconds, 60);  // well below the timeout of waiting ranks, 300 s
    for (const std::string& part :
         {std::string("train.device"), std::string("rank 0"), GetParam().reason}) {
      EXPECT_NE(outcome.error.find(part), std::string::npos) << part << " in\n" << outcome.error;
    }
    EXPECT_FALSE(std::filesystem::exists(scratch_ / ("run" + std::to_string(ranks))));
  }
}

TEST_P(NoGpu, DoctorReportsTheReason) {
  const Outcome doctor = run({"doctor"}, 0, environment_);
  EXPECT_EQ(doctor.code, 0) << doctor.out;
  for (const std::string& part :
       {std::string("CUDA       runtime "), std::string("cuDNN"), std::string("NCCL"),
        "no GPU: " + GetParam().reason, std::string("fix: if there is a GPU")}) {
    EXPECT_NE(doctor.out.find(part), std::string::npos) << part << " in\n" << doctor.out;
  }
}

INSTANTIATE_TEST_SUITE_P(
    With, NoGpu,
    ::testing::Values(Machine{"NoDriver", "", "no NVIDIA driver is installed"},
                      Machine{"OldDriver", "11040",
                              "the NVIDIA driver is too old: it supports CUDA 11.4"},
                      Machine{"DriverWithoutGpu", "13000", "the NVIDIA driver finds no GPU"}),
    [](const auto& machine) { return machine.param.name; });

}  // namespace
}  // namespace trireme::testing
