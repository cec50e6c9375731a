#include "trainer/base/json.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>

namespace trireme::train {
namespace {

using nlohmann::json;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(Json, NumbersThatAreNotFiniteAreWrittenAsNames) {
  EXPECT_EQ(json_text(json{{"a", kNan}, {"b", {1.5, kInfinity, {{"c", -kInfinity}}}}}),
            R"({"a":"NaN","b":[1.5,"Infinity",{"c":"-Infinity"}]})");
  EXPECT_EQ(json_text(nlohmann::ordered_json{{"b", std::vector<float>{NAN, 2}}, {"a", 1}}),
            R"({"b":["NaN",2.0],"a":1})");
  EXPECT_EQ(json_text(json(kNan)), R"("NaN")");
}

TEST(Json, NumbersRoundTrip) {
  for (const double number : {0.0, -1.5, 1e300, kInfinity, -kInfinity}) {
    EXPECT_EQ(to_number(json::parse(json_text(json(number)))), number);
  }
  EXPECT_TRUE(std::isnan(to_number(json::parse(json_text(json(kNan))))));
  EXPECT_EQ(to_number(json(7)), 7);
  for (const json& other : {json(), json("nan"), json("1"), json(true), json::array({1})}) {
    EXPECT_FALSE(as_number(other)) << other;
    EXPECT_THROW(to_number(other), Error) << other;
  }
}

TEST(Json, DeepNestingIsRefused) {
  const auto nested = [](int levels) {
    return std::string(levels, '[') + R"("[[\"[")" + std::string(levels, ']');
  };
  EXPECT_TRUE(parse_json(nested(100)).is_array());
  EXPECT_THROW(parse_json(nested(101)), json::parse_error);
  EXPECT_TRUE(parse_json(nested(200'000), /*throws=*/false).is_discarded());
  EXPECT_TRUE(parse_json("[", /*throws=*/false).is_discarded());
}

TEST(Json, InvalidUtf8IsReplaced) { EXPECT_EQ(json_text(json("\xFFx")), "\"\xEF\xBF\xBDx\""); }

TEST(Json, FormatsNumbers) {
  EXPECT_EQ(
      fmt::format("{:.3g} {:.4f} {:.4f}", JsonNumber{0.12345}, JsonNumber{2}, JsonNumber{kNan}),
      "0.123 2.0000 \"NaN\"");
  EXPECT_EQ(fmt::format("{} {:.4f}", PlainNumber{0.5}, PlainNumber{-kInfinity}), "0.5 -Infinity");
}

}  // namespace
}  // namespace trireme::train
