#include "core/text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "core/error.h"
#include "core/parse_number.h"

namespace trireme {
namespace {

const std::vector<std::string> kNames{"momentum", "weight_decay", "nesterov", "learning_rate"};

TEST(Nearest, FindsTheIntendedName) {
  EXPECT_EQ(nearest("momentun", kNames), "momentum");
  EXPECT_EQ(nearest("weightdecay", kNames), "weight_decay");
  EXPECT_EQ(nearest("nesterov", kNames), "nesterov");
  EXPECT_EQ(nearest("learnig_rat", kNames), "learning_rate");
}

TEST(Nearest, ReturnsNothingIfNoNameIsClose) {
  EXPECT_EQ(edit_distance("modle", "model"), 1u);
  EXPECT_EQ(edit_distance("modle", "mode"), 1u);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(nearest("xyz", kNames), "");
  EXPECT_EQ(nearest("batch_size", kNames), "");
  EXPECT_EQ(nearest("anything", {}), "");
}

TEST(DidYouMean, FormatsASuggestion) {
  EXPECT_EQ(did_you_mean("momentun", kNames), "; did you mean 'momentum'?");
  EXPECT_EQ(did_you_mean("qqqqqqqqqqqqq", kNames), "");
}

TEST(ParseNumber, TakesTheEntireText) {
  EXPECT_EQ(parse_number<int>("-12"), -12);
  EXPECT_EQ(parse_number<double>("2.5e-1"), 0.25);
  for (const char* text : {"", "x", "1x", " 1", "1 ", "+1", "0x1", "1.5"}) {
    EXPECT_EQ(parse_number<int>(text), std::nullopt) << text;
  }
}

TEST(ParseNumber, RefusesNumbersOutsideTheRange) {
  EXPECT_EQ(parse_number<uint16_t>("65535"), 65535);
  EXPECT_EQ(parse_number<uint16_t>("65536"), std::nullopt);
  EXPECT_EQ(parse_number<uint16_t>("-1"), std::nullopt);
}

TEST(Format, Bytes) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(25.0 * (1 << 20)), "25.0 MiB");
  EXPECT_EQ(format_bytes(1.5 * (1 << 30)), "1.5 GiB");
}

TEST(Format, Counts) {
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00 k");
  EXPECT_EQ(format_count(11170000), "11.17 M");
}

TEST(Format, Durations) {
  EXPECT_EQ(format_duration(3.14), "3.1s");
  EXPECT_EQ(format_duration(123), "2m 03s");
  EXPECT_EQ(format_duration(3723), "1h 02m 03s");
  EXPECT_EQ(format_duration(-1), "?");
  EXPECT_EQ(format_duration(std::numeric_limits<double>::quiet_NaN()), "?");
}

TEST(Text, PrintableEscapesWhatTerminalsActOn) {
  EXPECT_EQ(printable("naïve 数 \U0001f600 a\\b"), "naïve 数 \U0001f600 a\\b");
  EXPECT_EQ(printable("a\nwarning: \x1b[31mb\r\x7f"), "a\\nwarning: \\x1b[31mb\\x0d\\x7f");
  EXPECT_EQ(printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(printable("\u009b1m"), "\\x9b1m") << "a control character in UTF-8";
  EXPECT_EQ(printable("\u202egpj.exe"), "\\u202egpj.exe") << "changes the writing direction";
  EXPECT_EQ(printable("\xff\xc3(\xe2\x82"), "\\xff\\xc3(\\xe2\\x82") << "not UTF-8";
}

TEST(Text, PrintableShortens) {
  EXPECT_EQ(printable(std::string(300, 'a')), std::string(300, 'a'));
  const std::string begin(150, 'a');
  const std::string end(150, 'c');
  EXPECT_EQ(printable(fmt::format("{}{:b<700}{}", begin, "", end)),
            fmt::format("{} ... (700 bytes) ... {}", begin, end));
  EXPECT_EQ(printable_message("\x1b[31ma\n\nb\x07\n"), "\\x1b[31ma\n\nb\\x07\n");
  EXPECT_EQ(printable_message(""), "");
  EXPECT_EQ(printable(std::string(5, '\n'), 4), "\\n\\n ... (1 bytes) ... \\n\\n");
}

TEST(Text, DataErrorsArePrintable) {
  const DataError error("shard.tar: a\nwarning: no",
                        "label\x1b[2J " + std::string(100000, 'x') + " end");
  const std::string text = error.what();
  EXPECT_TRUE(text.starts_with("shard.tar: a\\nwarning: no: label\\x1b[2J xxx")) << text;
  EXPECT_TRUE(text.ends_with("xxx end")) << text;
  EXPECT_LT(text.size(), 3000u);
}

// Test vectors from RFC 4648, section 10.
TEST(Text, Base64) {
  const auto encoded = [](const std::string& text) {
    return base64({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  };
  EXPECT_EQ(encoded(""), "");
  EXPECT_EQ(encoded("f"), "Zg==");
  EXPECT_EQ(encoded("fo"), "Zm8=");
  EXPECT_EQ(encoded("foobar"), "Zm9vYmFy");
  EXPECT_EQ(encoded("\xFB\xFF"), "+/8=");
}

}  // namespace
}  // namespace trireme
