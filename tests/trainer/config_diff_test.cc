#include "trainer/config/config_diff.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace trireme::train {
namespace {

const char* const kText = R"(
model { zoo { name: "mlp" hidden: [32, 16] } }
data { synthetic { shape: [8] } }
batch { global: 64 }
train { epochs: 3 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.1 cosine {} }
)";

std::string between(const std::vector<std::string>& in_a, const std::vector<std::string>& in_b) {
  std::string text;
  for (const ConfigDifference& field :
       config_differences(parse_config(kText, "a", in_a).run, parse_config(kText, "b", in_b).run)) {
    text += field.path + ": " + field.a + " | " + field.b + "\n";
  }
  return text;
}

TEST(ConfigDiff, EqualConfigurationsHaveNoDifferences) {
  EXPECT_EQ(between({"train.epochs=4"}, {"train.epochs=4"}), "");
}

TEST(ConfigDiff, AnUnsetFieldEqualsItsDefault) {
  EXPECT_EQ(between({}, {"watchdog.timeout_seconds=300", "train.eager=false", "data.prefetch=4"}),
            "");
}

// These messages change a run even if all their fields have their defaults.
TEST(ConfigDiff, AMessageThatIsOnlySetIsADifference) {
  EXPECT_EQ(between({}, {"train.early_stopping={}"}), "train.early_stopping:  | set\n");
  RunConfig plain, masked;
  plain.mutable_data()->mutable_tokens();
  masked = plain;
  masked.mutable_data()->mutable_mask();
  for (const bool removed : {false, true}) {
    const auto differences =
        removed ? config_differences(masked, plain) : config_differences(plain, masked);
    ASSERT_EQ(differences.size(), 1u);
    EXPECT_EQ(differences[0].path, "data.mask");
    EXPECT_EQ(differences[0].on_resume, OnResume::REFUSED);
  }
  RunConfig rotated = plain;
  auto* layer = plain.mutable_model()->mutable_network()->add_layer();
  layer->mutable_attention();
  layer = rotated.mutable_model()->mutable_network()->add_layer();
  layer->mutable_attention()->mutable_rotary();
  ASSERT_EQ(config_differences(plain, rotated).size(), 1u);
  EXPECT_EQ(config_differences(plain, rotated)[0].path, "model.network.layer[0].attention.rotary");
  EXPECT_EQ(config_differences(plain, rotated)[0].on_resume, OnResume::REFUSED);
}

TEST(ConfigDiff, RunDirIsIgnored) {
  EXPECT_EQ(between({"run_dir=runs/a"}, {"run_dir=runs/b"}), "");
}

TEST(ConfigDiff, ValuesAreInTextFormat) {
  EXPECT_EQ(between({}, {"batch.micro=8", "train.precision=BF16", "model.zoo.hidden=32",
                         "data.root=x", "watchdog.timeout_seconds=5"}),
            "model.zoo.hidden: [32, 16] | [32]\n"
            "data.root:  | \"x\"\n"
            "batch.micro:  | 8\n"
            "train.precision: FP32 | BF16\n"
            "watchdog.timeout_seconds: 300 | 5\n");
}

TEST(ConfigDiff, OneofsAreComparedByTheNameOfTheirField) {
  EXPECT_EQ(between({}, {"schedule.one_cycle.rising_fraction=0.2"}),
            "schedule: cosine | one_cycle\n"
            "schedule.cosine.min_learning_rate: 0 | \n"
            "schedule.one_cycle.rising_fraction:  | 0.2\n"
            "schedule.one_cycle.start_divisor:  | 25\n"
            "schedule.one_cycle.final_divisor:  | 10000\n");
  EXPECT_EQ(between({"schedule.warmup.steps=5"}, {"schedule.warmup.epochs=1"}),
            "schedule.warmup.steps: 5 | \n"
            "schedule.warmup.epochs:  | 1\n");
}

TEST(ConfigDiff, AdditionalElementsAreDifferences) {
  EXPECT_EQ(between({}, {"data.transform[0].horizontal_flip={}"}),
            "data.transform[0]:  | horizontal_flip\n"
            "data.transform[0].horizontal_flip.probability:  | 0.5\n");
}

}  // namespace
}  // namespace trireme::train
