#include "trainer/report/environment.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/version.h"
#include "tests/comm/ranks.h"

namespace trireme::train {
namespace {

TEST(Environment, DescribesEveryRankAndItsHost) {
  const auto world = test::join();
  const auto cpu = create_cpu_device(1);
  const std::string text = describe_environment(*world, *cpu);
  if (world->rank() != 0) {
    EXPECT_EQ(text, "");
    return;
  }
  const auto environment = nlohmann::json::parse(text);
  EXPECT_NE(environment["command"].get<std::string>().find("trainer_environment_test"),
            std::string::npos);
  EXPECT_EQ(environment["version"], version());
  EXPECT_EQ(environment["started"].get<std::string>().size(), 20u);
  ASSERT_EQ(environment["hosts"].size(), 1u);
  const auto& host = environment["hosts"][0];
  EXPECT_EQ(host["name"], world->placement().host_name);
  ASSERT_EQ(host["ranks"].size(), static_cast<size_t>(world->size()));
  for (int rank = 0; rank < world->size(); ++rank) EXPECT_EQ(host["ranks"][size_t(rank)], rank);
  EXPECT_GT(host["cores"].get<int>(), 0);
  EXPECT_GT(host["memory_bytes"].get<int64_t>(), 0);
  EXPECT_TRUE(host["gpus"].empty());
  EXPECT_TRUE(environment["libraries"].contains("oneDNN"));
  EXPECT_FALSE(environment["mpi"].get<std::string>().empty());
}

}  // namespace
}  // namespace trireme::train
