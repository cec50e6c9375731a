#include "trainer/config/config_show.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <sstream>
#include <string>

#include "trainer/config/config.h"
#include "trainer/config/config_fields.h"

namespace trireme::train {
namespace {

TEST(ConfigShow, AnnotatedTextReadsBackTheSame) {
  for (const auto& entry : std::filesystem::directory_iterator(TRIREME_SOURCE "/launch/configs")) {
    SCOPED_TRACE(entry.path().string());
    const Config config = load_config(entry.path().string(), {});
    const Config again = parse_config(to_annotated_text(config.run), "annotated", {});
    EXPECT_EQ(to_text(again.run), to_text(config.run));
  }
}

TEST(ConfigShow, ShowsCommentsAndDefaults) {
  const Config config = load_config(TRIREME_SOURCE "/launch/configs/mnist.txtpb", {});
  const std::string text = to_annotated_text(config.run);
  for (const char* words :
       {"# Seeds all random numbers of the run", "\nseed: 1\n",
        "  # Samples per update over all ranks together, independent of the number of ranks.\n"
        "  global: 128\n",
        "  # micro: (integer)\n", "  precision: FP32  # FP32, TF32, BF16, FP16\n",
        "  # sgd {\n  #   momentum: 0\n", "# The run ends, with a message", "#   port: 0\n"}) {
    EXPECT_NE(text.find(words), std::string::npos) << words << "\nin\n" << text;
  }
}

// Each field has its own line: `name: value` or `name {`, possibly in a comment.
TEST(ConfigShow, NamesEveryField) {
  const Config config = load_config(TRIREME_SOURCE "/launch/configs/digits.txtpb", {});
  std::set<std::string> named;
  std::istringstream text(to_annotated_text(config.run));
  for (std::string line; std::getline(text, line);) {
    const size_t begin = line.find_first_not_of("# ");
    if (begin == std::string::npos) continue;
    named.insert(line.substr(begin, line.find_first_of(": ", begin) - begin));
  }
  for (const FieldPath& place : all_fields(RunConfig::descriptor())) {
    EXPECT_TRUE(named.contains(place.field->name())) << place.path;
  }
}

TEST(ConfigShow, CommentsAreThoseOfTheProto) {
  const auto* batch = BatchConfig::descriptor();
  EXPECT_EQ(comment_of(batch->FindFieldByName("global")),
            " Samples per update over all ranks together, independent of the number of ranks.");
  // The field has no comment, but its message has.
  EXPECT_NE(comment_of(ScheduleConfig::descriptor()->FindFieldByName("cosine")).find("cos(pi"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::train
