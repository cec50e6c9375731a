#include "trainer/config/config_fields.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/error.h"
#include "core/field_options.pb.h"
#include "trainer/config/config.h"

namespace trireme::train {
namespace {

using Words = std::vector<std::string>;

Words typed(const std::string& text) { return complete_assignment(RunConfig::descriptor(), text); }

std::string error_of(const std::string& text, const Words& assignments = {}) {
  try {
    parse_config(text, "run.txtpb", assignments);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(CompleteAssignment, ExtendsPathsByOneName) {
  EXPECT_EQ(typed("opt"), Words{"optimizer."});
  EXPECT_EQ(typed("optimizer.sgd."), (Words{"optimizer.sgd.momentum=", "optimizer.sgd.nesterov="}));
  EXPECT_EQ(typed("s"), (Words{"seed=", "schedule."}));
  EXPECT_EQ(typed("data.tr"), Words{"data.transform[0]."});
  EXPECT_EQ(typed("model.network.layer[7].dense.un"), Words{"model.network.layer[7].dense.units="});
}

TEST(CompleteAssignment, OffersTheValuesOfEnumsAndBools) {
  EXPECT_EQ(typed("train.precision="), (Words{"train.precision=FP32", "train.precision=TF32",
                                              "train.precision=BF16", "train.precision=FP16"}));
  EXPECT_EQ(typed("train.eager=t"), Words{"train.eager=true"});
  EXPECT_EQ(typed("batch.global="), Words{});
}

TEST(CompleteAssignment, ReturnsNothingForUnknownFields) {
  EXPECT_EQ(typed("optimiser."), Words{});
  EXPECT_EQ(typed("batch.global.x"), Words{});
  EXPECT_EQ(typed("nothing="), Words{});
  EXPECT_EQ(typed("data.."), Words{});
}

// Only such fields are checked.
TEST(Limits, ApplyToNumbersThatAreNotRepeated) {
  int count = 0;
  for (const FieldPath& one : all_fields(RunConfig::descriptor())) {
    if (!one.field->options().HasExtension(limits)) continue;
    ++count;
    EXPECT_FALSE(one.field->is_repeated()) << one.path;
    EXPECT_TRUE(one.field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_FLOAT ||
                one.field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_DOUBLE)
        << one.path;
  }
  EXPECT_GT(count, 20);
}

TEST(SuggestField, FindsFieldsOfOtherMessages) {
  struct Case {
    std::string text;
    std::string assignment;
    std::string hint;
  };
  const std::vector<Case> cases = {
      {"optimizer { momentum: 0.9 }", "optimizer.momentum=0.9",
       "did you mean 'optimizer.sgd.momentum' or 'optimizer.lars.momentum'?"},
      {"optimizer { momentun: 0.9 }", "optimizer.momentun=0.9",
       "did you mean 'optimizer.sgd.momentum' or 'optimizer.lars.momentum'?"},
      {"momentum: 0.9", "momentum=0.9",
       "did you mean 'optimizer.sgd.momentum' or 'optimizer.lars.momentum'?"},
      {"optimizer { learning_rate: 1 }", "optimizer.learning_rate=1",
       "did you mean 'schedule.learning_rate'?"},
      {"optimizer { sgd { weight_decay: 1 } }", "optimizer.sgd.weight_decay=1",
       "did you mean 'optimizer.weight_decay'?"},
      {"epochs: 3", "epochs=3", "did you mean 'train.epochs'?"},
      {"model { name: \"lenet\" }", "model.name=lenet",
       "did you mean 'model.zoo.name' or 'model.network.name'?"},
      {"adam {}", "adam=", "did you mean 'optimizer.adam'?"},
      {"data { transform { size: 3 } }", "data.transform[0].size=3",
       "did you mean 'data.transform[0].resize.size' or"},
      // A value, not a field.
      {"train { bf16: true }", "train.bf16=true", "did you mean 'train.precision=BF16'"},
      // Similar names in the same message have priority.
      {"schedule { learning_rat: 1 }", "schedule.learning_rat=1", "did you mean 'learning_rate'?"},
      // Without a similar name, all fields are listed if they are few.
      {"batch { qqqqqqqq: 1 }", "batch.qqqqqqqq=1", "; there are global, micro"},
  };
  for (const Case& c : cases) {
    EXPECT_NE(error_of(c.text).find(c.hint), std::string::npos) << error_of(c.text);
    EXPECT_NE(error_of("", {c.assignment}).find(c.hint), std::string::npos)
        << error_of("", {c.assignment});
  }
}

TEST(SuggestField, ReturnsNothingWithoutASimilarNameAmongManyFields) {
  const std::string error = error_of("data { qqqqqqqq: 1 }");
  EXPECT_TRUE(error.ends_with("no such field")) << error;
}

}  // namespace
}  // namespace trireme::train
