#include "core/openmp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace trireme {
namespace {

// The runtime reports the settings that it has read: libgomp the number of pauses, LLVM's the time.
// A thread that waits longer sleeps.
TEST(OpenMp, TheRuntimeLimitsSpinning) {
  if (omp_get_num_procs() == 1) GTEST_SKIP() << "the limit is not set if there is one core";
  testing::internal::CaptureStderr();
  omp_display_env(1);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::AnyOf(testing::HasSubstr("GOMP_SPINCOUNT = '10000'"),
                             testing::ContainsRegex("KMP_BLOCKTIME='1[^0-9]")));
}

// Scripts find the running ranks by this name.
TEST(OpenMp, ProcessNameIsUnchanged) {
  std::string name;
  std::getline(std::ifstream("/proc/self/comm"), name);
  EXPECT_EQ(name,
            std::filesystem::read_symlink("/proc/self/exe").filename().string().substr(0, 15));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  trireme::limit_openmp_spinning(argv);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
