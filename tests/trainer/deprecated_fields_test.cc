#include "trainer/config/deprecated_fields.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/field_options.pb.h"
#include "trainer/config/config.h"
#include "trainer/config/config_diff.h"
#include "trainer/config/config_fields.h"
#include "trainer/config/config_show.h"

namespace trireme::train {
namespace {

using google::protobuf::FieldDescriptor;
using Strings = std::vector<std::string>;

const char* const kPlain = R"(model { zoo { name: "mlp" hidden: 32 } }
batch { global: 64 }
train { epochs: 3 }
)";

// Line 4 has the data, line 5 the schedule.
Config parse_with(const std::string& data, const std::string& schedule = "",
                  const Strings& assignments = {}) {
  return parse_config(kPlain + ("data { synthetic { shape: [8] } " + data + " }\n") +
                          "schedule { learning_rate: 0.1 " + schedule + " }\n",
                      "run.txtpb", assignments);
}

std::string error_with(const std::string& data, const Strings& assignments = {}) {
  try {
    parse_with(data, "", assignments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

std::vector<float> std_of(const Config& config) {
  const auto& values = config.run.data().normalize().std();
  return {values.begin(), values.end()};
}

TEST(DeprecatedFields, OldNameInAFileSetsTheNewField) {
  const Config config = parse_with("normalize { deviation: [0.1, 3] }", "cosine { minimum: 1e-3 }");
  EXPECT_EQ(std_of(config), (std::vector<float>{0.1F, 3}));
  EXPECT_EQ(config.run.schedule().cosine().min_learning_rate(), 1e-3);
  EXPECT_EQ(config.warnings,
            (Strings{"run.txtpb:4: data.normalize.deviation is deprecated; use data.normalize.std",
                     "run.txtpb:5: schedule.cosine.minimum is deprecated; use "
                     "schedule.cosine.min_learning_rate"}));
}

TEST(DeprecatedFields, NewNameGivesNoWarning) {
  EXPECT_EQ(parse_with("normalize { std: 3 }").warnings, Strings{});
}

TEST(DeprecatedFields, OldNameOnTheCommandLineSetsTheNewField) {
  const Config config = parse_with("", "", {"data.normalize.deviation=0.5,2"});
  EXPECT_EQ(std_of(config), (std::vector<float>{0.5F, 2}));
  EXPECT_EQ(config.warnings,
            Strings{"--set: data.normalize.deviation is deprecated; use data.normalize.std"});
}

TEST(DeprecatedFields, OldNameInTextOnTheCommandLineSetsTheNewField) {
  const Config config = parse_with("", "", {"data.normalize={deviation: 2}"});
  EXPECT_EQ(std_of(config), std::vector<float>{2});
  EXPECT_EQ(config.warnings, Strings{"--set data.normalize:1: deviation is deprecated; use std"});
}

TEST(DeprecatedFields, CommandLineOverridesTheFileUnderEitherName) {
  EXPECT_EQ(std_of(parse_with("normalize { deviation: 3 }", "", {"data.normalize.std=2"})),
            std::vector<float>{2});
  EXPECT_EQ(std_of(parse_with("normalize { std: 3 }", "", {"data.normalize.deviation=2"})),
            std::vector<float>{2});
}

TEST(DeprecatedFields, BothNamesInOneFileAreAnError) {
  EXPECT_EQ(error_with("normalize { std: 3\n deviation: 3 }"),
            "run.txtpb:5: data.normalize.deviation: is the deprecated name of std, which is set "
            "too; remove deviation");
}

TEST(DeprecatedFields, OldNamesWorkInRepeatedMessages) {
  const Config config = parse_config(R"(
model { network {
  layer { dense { units: 3 } }
  layer { dense {
    units: 3
    weight_init { normal { deviation: 0.25 } } } }
  layer { softmax_cross_entropy {} } } }
data { tokens { train: "a" vocabulary: 9 } }
batch { global: 64 }
train { epochs: 3 }
schedule { learning_rate: 0.1 }
)",
                                     "run.txtpb", {});
  const LayerConfig& layer = config.run.model().network().layer(1);
  EXPECT_EQ(layer.dense().weight_init().normal().std(), 0.25F);
  EXPECT_EQ(config.run.data().tokens().vocab_size(), 9);
  ASSERT_EQ(config.warnings.size(), 2U);
  const std::string path = "model.network.layer[1].dense.weight_init.normal.";
  EXPECT_EQ(config.warnings[0],
            "run.txtpb:6: " + path + "deviation is deprecated; use " + path + "std");
}

TEST(DeprecatedFields, ErrorsPointToTheLineOfTheOldName) {
  EXPECT_EQ(error_with("}\nchecks {\n loss_spike_deviations: -3"),
            "run.txtpb:6: checks.loss_spike_stds: must be a finite number >= 0, got -3");
  EXPECT_EQ(error_with("", {"checks.loss_spike_deviations=-3"}),
            "--set: checks.loss_spike_stds: must be a finite number >= 0, got -3");
  EXPECT_EQ(error_with("normalize { deviation: red }"),
            "run.txtpb:4: data.normalize.deviation[0]: expected double, got: red");
}

TEST(DeprecatedFields, ResolvedConfigurationHasTheNewNamesAlone) {
  const Config old_names = parse_with("normalize { deviation: 0.3 }", "cosine { minimum: 1e-3 }");
  const Config new_names =
      parse_with("normalize { std: 0.3 }", "cosine { min_learning_rate: 1e-3 }");
  EXPECT_EQ(to_text(old_names.run), to_text(new_names.run));
  EXPECT_EQ(config_hash(old_names.run), config_hash(new_names.run));
  EXPECT_TRUE(config_differences(old_names.run, new_names.run).empty());
}

TEST(DeprecatedFields, AreRestoredForHashes) {
  RunConfig run = parse_with("normalize { std: [0.1, 3] }", "cosine {}").run;
  restore_deprecated_fields(run);
  const std::string text = to_text(run);
  EXPECT_NE(text.find("deviation: [0.1, 3]"), std::string::npos) << text;
  EXPECT_NE(text.find("minimum: 0\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("std"), std::string::npos) << text;
  EXPECT_EQ(text.find("min_learning_rate"), std::string::npos) << text;
}

TEST(DeprecatedFields, AreNotShownSuggestedOrCompleted) {
  const std::string shown = to_annotated_text(parse_with("normalize {}", "cosine {}").run);
  for (const char* name : {"deviation:", "minimum:", "loss_spike_deviations"}) {
    EXPECT_EQ(shown.find(name), std::string::npos) << name << "\nin\n" << shown;
  }
  for (const FieldPath& place : all_fields(RunConfig::descriptor())) {
    EXPECT_FALSE(is_deprecated(place.field)) << place.path;
  }
  EXPECT_EQ(complete_assignment(RunConfig::descriptor(), "data.normalize."),
            (Strings{"data.normalize.mean=", "data.normalize.std="}));
  EXPECT_EQ(complete_assignment(RunConfig::descriptor(), "checks.loss"),
            Strings{"checks.loss_spike_stds="});
  EXPECT_EQ(error_with("normalize { deviatio: 3 }").find("deviation"), std::string::npos);
}

TEST(DeprecatedFields, PathsAreTranslated) {
  const auto* root = RunConfig::descriptor();
  EXPECT_EQ(current_path(root, "data.normalize.deviation[0]"), "data.normalize.std[0]");
  EXPECT_EQ(current_path(root, "schedule.polynomial.minimum"),
            "schedule.polynomial.min_learning_rate");
  for (const char* path : {"", "seed", "model.network.layer[2].name", "no.such..field.", "."}) {
    EXPECT_EQ(current_path(root, path), path);
  }
}

TEST(DeprecatedFields, ReplacementsHaveTheSameType) {
  int count = 0;
  for (const FieldPath& place : all_fields(RunConfig::descriptor())) {
    const auto* message = place.field->containing_type();
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor* field = message->field(i);
      if (!is_deprecated(field)) continue;
      SCOPED_TRACE(field->full_name());
      const FieldDescriptor* replacement =
          message->FindFieldByName(field->options().GetExtension(renamed_to));
      ASSERT_NE(replacement, nullptr);
      EXPECT_FALSE(is_deprecated(replacement));
      EXPECT_EQ(replacement->type(), field->type());
      EXPECT_EQ(replacement->is_repeated(), field->is_repeated());
      EXPECT_EQ(field->message_type(), nullptr);
      EXPECT_FALSE(field->has_default_value());
      ++count;
    }
  }
  EXPECT_GT(count, 5);
}

}  // namespace
}  // namespace trireme::train
