// main() of gpu_tests, which contains the tests that use a GPU. A link to it with the name of one,
// such as ops_pool_test, runs the cases of tests/ops/pool_test.cc.
#include <gtest/gtest.h>

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

// Restores the given filter after gtest has chosen the cases and before it prints the filter.
class RestoreFilter final : public testing::EmptyTestEventListener {
 public:
  explicit RestoreFilter(std::string given) : given_(std::move(given)) {}
  void OnTestProgramStart(const testing::UnitTest&) override {
    testing::GTEST_FLAG(filter) = given_;
  }

 private:
  std::string given_;
};

// Makes gtest leave out the suites of other tests. Throws if there is no such test, or if two tests
// have suites of the same name, since gtest takes them for one.
void run_only(const std::string& test) {
  auto& all = *testing::UnitTest::GetInstance();
  std::string others;
  bool found = false;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    const std::string owner = test_of(suite.GetTestInfo(0)->file());
    for (int j = 1; j < suite.total_test_count(); ++j) {
      const std::string other = test_of(suite.GetTestInfo(j)->file());
      if (other != owner) {
        throw std::logic_error(owner + " and " + other + " both have a suite " + suite.name());
      }
    }
    if (owner == test) {
      found = true;
    } else {
      others += std::string(":") + suite.name() + ".*";
    }
  }
  if (!found) {
    throw std::invalid_argument("start it by a link with the name of a test in gpu_programs; '" +
                                test + "' is none");
  }
  std::string& filter = testing::GTEST_FLAG(filter);
  all.listeners().Append(new RestoreFilter(filter));
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
