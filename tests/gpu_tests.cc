// main() of gpu_tests, which contains the tests that use a GPU. A link to it with the name of one,
// such as ops_pool_test, runs the cases of tests/ops/pool_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>

#include "comm/ranks.h"

namespace {

const std::set<std::string> kOnRanks{TRIREME_ON_RANKS};

// Returns the name of the test that a source file is compiled to.
std::string test_of(const std::filesystem::path& source) {
  return source.parent_path().filename().string() + "_" + source.stem().string();
}

// Sets gtest's filter once it has chosen the cases. It is printed after that.
class ShowFilter final : public testing::EmptyTestEventListener {
 public:
  explicit ShowFilter(std::string shown) : shown_(std::move(shown)) {}
  void OnTestProgramStart(const testing::UnitTest&) override {
    testing::GTEST_FLAG(filter) = shown_;
  }

 private:
  std::string shown_;
};

// Adds the suites of other tests to those that gtest's filter leaves out. Throws if there is none
// left, or a suite belongs to two tests.
void run_only(const std::string& test) {
  auto& all = *testing::UnitTest::GetInstance();
  std::string others;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    int own = 0;
    for (int j = 0; j < suite.total_test_count(); ++j) {
      own += test_of(suite.GetTestInfo(j)->file()) == test;
    }
    if (own == 0) {
      others += std::string(":") + suite.name() + ".*";
    } else if (own < suite.total_test_count()) {
      throw std::logic_error(std::string("two tests have a suite ") + suite.name() +
                             "; rename one");
    }
  }
  if (std::ranges::count(others, ':') == all.total_test_suite_count()) {
    throw std::invalid_argument("started as " + test +
                                ", which is not the name of one of its tests");
  }
  std::string& filter = testing::GTEST_FLAG(filter);
  all.listeners().Append(new ShowFilter(filter));
  filter += (filter.find('-') == std::string::npos ? "-" : "") + others;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string test = std::filesystem::path(argv[0]).filename();
  const bool on_ranks = kOnRanks.contains(test);
  if (on_ranks) trireme::test::emulate_device_of_each_rank();
  testing::InitGoogleTest(&argc, argv);
  try {
    run_only(test);
  } catch (const std::logic_error& error) {
    std::fprintf(stderr, "gpu_tests: %s\n", error.what());
    return 2;
  }
  return on_ranks ? trireme::test::run_on_all_ranks(argc, argv) : RUN_ALL_TESTS();
}
