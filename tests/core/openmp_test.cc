#include "core/openmp.h"

#include <gtest/gtest.h>
#include <omp.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <string>

namespace trireme {
namespace {

double processor_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// With libgomp's default of 300,000 pauses, every wait would use several milliseconds of a core.
TEST(OpenMp, ThreadWaitingForTheNextRegionSleeps) {
  constexpr int kRegions = 50;
  std::atomic<int> ran = 0;
  const double before = processor_seconds();
  for (int i = 0; i < kRegions; ++i) {
#pragma omp parallel num_threads(2)
    ++ran;
    usleep(20'000);
  }
  EXPECT_EQ(ran, 2 * kRegions);
  EXPECT_LT(processor_seconds() - before, 0.003 * kRegions);
}

TEST(OpenMp, ThreadWaitingAtTheEndOfARegionSleeps) {
  constexpr int kRegions = 50;
  const double before = processor_seconds();
  for (int i = 0; i < kRegions; ++i) {
#pragma omp parallel num_threads(2)
    if (omp_get_thread_num() == 1) usleep(20'000);
  }
  EXPECT_LT(processor_seconds() - before, 0.003 * kRegions);
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
