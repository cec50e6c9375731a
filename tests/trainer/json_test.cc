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

TEST(Json, KeepsOnlyTheFieldsThatAreWanted) {
  const auto parsed = parse_json_fields(
      R"({"a": [1, {"b": 2}], "c": {"a": 3}, "b": {"a": [4]}, "d": 5, "e": "x"})", {"a", "b", "e"});
  EXPECT_EQ(parsed, json::parse(R"({"a": [], "b": {}, "e": "x"})"));
  EXPECT_EQ(parse_json_fields("[1, [2], {\"a\": 3}]", {"a"}), json::array());
  EXPECT_EQ(parse_json_fields("7", {"a"}), json(7));
  for (const std::string text : {"{\"b\": }", "{\"b\": 1", "", "{} {}"}) {
    EXPECT_TRUE(parse_json_fields(text, {"a"}).is_discarded()) << text;
  }
}

TEST(Json, ProblemsAreSaidWithoutTheLibrarysWords) {
  const auto problem = [](const auto& work) -> std::string {
    try {
      work();
    } catch (const std::exception& error) {
      return json_problem(error);
    }
    return "none";
  };
  EXPECT_EQ(problem([] { parse_json("{\"a\": [1, tru]}"); }),
            "parse error at line 1, column 14: syntax error while parsing value - invalid literal");
  EXPECT_EQ(problem([] { parse_json("{}").at("dtype"); }), "key 'dtype' not found");
  EXPECT_EQ(problem([] { parse_json(std::string(101, '[')); }),
            "parse error: nested more than 100 levels deep");
  EXPECT_EQ(problem([] { throw std::runtime_error("[other]"); }), "[other]");
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
