#include "trainer/checkpoint/resume_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "temporary_folder.h"
#include "trainer/config/config_diff.h"
#include "trainer/config/config_fields.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using Words = std::vector<std::string>;

// --- Every field has a rule, which docs/resuming.md lists ---

// A field that has (on_resume); see core/field_options.proto.
struct Stated {
  std::string path;  // without indices
  const FieldDescriptor* field;
  OnResume::Rule rule;
};

std::string without_indices(std::string path) {
  for (size_t at; (at = path.find("[0]")) != std::string::npos;) path.erase(at, 3);
  return path;
}

std::vector<Stated> stated_rules() {
  std::vector<Stated> found;
  for (const FieldPath& one : all_fields(RunConfig::descriptor())) {
    const auto& options = one.field->options();
    if (!options.HasExtension(on_resume)) continue;
    found.push_back({without_indices(one.path), one.field, options.GetExtension(on_resume)});
  }
  return found;
}

std::string parent_of(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? "" : path.substr(0, dot);
}

// Returns "`train.epochs`", "all of `schedule`", or, for a message in a oneof, "choice of
// `optimizer.sgd`".
std::string name_in_table(const Stated& one) {
  if (!one.field->message_type()) return "`" + one.path + "`";
  return (one.field->containing_oneof() ? "choice of `" : "all of `") + one.path + "`";
}

const std::map<OnResume::Rule, std::string> kRules = {
    {OnResume::REFUSED, "refused"}, {OnResume::WARNED, "warned"}, {OnResume::FREE, "free"}};

// Returns the table, with a row for all fields of a message that have the same rule.
std::string table() {
  struct Row {
    std::string parent;
    OnResume::Rule rule;
    std::string names;
  };
  std::vector<Row> rows;
  for (const Stated& one : stated_rules()) {
    const std::string parent = parent_of(one.path);
    const auto row = std::ranges::find_if(
        rows, [&](const Row& r) { return r.parent == parent && r.rule == one.rule; });
    if (row == rows.end()) {
      rows.push_back({parent, one.rule, name_in_table(one)});
    } else {
      row->names += ", " + name_in_table(one);
    }
  }
  std::string text = "| Fields | Changed |\n|---|---|\n";
  for (const Row& row : rows) text += "| " + row.names + " | " + kRules.at(row.rule) + " |\n";
  return text;
}

std::string guide() {
  std::ifstream file(fs::path(TRIREME_SOURCE) / "docs/resuming.md");
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

// Reads the rules from docs/resuming.md.
std::map<std::string, OnResume::Rule> rules_of_guide() {
  std::map<std::string, OnResume::Rule> found;
  std::istringstream lines(guide());
  for (std::string line; std::getline(lines, line);) {
    for (const auto& [rule, word] : kRules) {
      if (!line.starts_with("| ") || !line.ends_with("| " + word + " |")) continue;
      for (size_t begin = 0; (begin = line.find('`', begin)) != std::string::npos;) {
        const size_t end = line.find('`', begin + 1);
        found[line.substr(begin + 1, end - begin - 1)] = rule;
        begin = end + 1;
      }
    }
  }
  return found;
}

TEST(ResumeRules, DocumentationHasTheTable) {
  EXPECT_NE(guide().find("\n" + table()), std::string::npos)
      << "the table of docs/resuming.md must be\n"
      << table();
}

TEST(ResumeRules, EveryFieldHasARule) {
  std::set<std::string> stated;
  for (const Stated& one : stated_rules()) stated.insert(one.path);
  for (const FieldPath& one : all_fields(RunConfig::descriptor())) {
    if (one.field->message_type()) continue;
    std::string path = without_indices(one.path);
    while (!path.empty() && !stated.contains(path)) path = parent_of(path);
    EXPECT_FALSE(path.empty()) << one.path << " needs [(on_resume) = ...] in its .proto";
  }
}

// Changes the value of the field.
void change(Message& message, const FieldDescriptor* field) {
  const auto& reflection = *message.GetReflection();
  if (field->is_repeated()) {
    assign(message, field->name() + "=" + (field->enum_type() ? "0" : "7"));
    return;
  }
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, field, !reflection.GetBool(message, field));
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, field,
                                     reflection.GetEnumValue(message, field) == 0 ? 1 : 0);
    default:
      assign(message, field->name() + "=77");
  }
}

// Returns two configurations that differ only in that field.
std::pair<RunConfig, RunConfig> pair_for(const std::string& path) {
  std::pair<RunConfig, RunConfig> pair;
  std::vector<Message*> messages = {&pair.first, &pair.second};
  std::istringstream names(path);
  std::string name;
  while (std::getline(names, name, '.')) {
    const FieldDescriptor* field =
        messages[0]->GetDescriptor()->FindFieldByName(name.substr(0, name.find('[')));
    if (!field->message_type()) {
      change(*messages[1], field);
      break;
    }
    for (Message*& message : messages) {
      const auto& reflection = *message->GetReflection();
      message = field->is_repeated() ? reflection.AddMessage(message, field)
                                     : reflection.MutableMessage(message, field);
    }
  }
  return pair;
}

// Returns the rule of the field or of the nearest enclosing field.
OnResume::Rule rule_in(const std::map<std::string, OnResume::Rule>& rules, std::string path) {
  while (!path.empty() && !rules.contains(path)) path = parent_of(path);
  return rules.at(path);  // throws if the table has no row for it
}

TEST(ResumeRules, EveryFieldFollowsTheDocumentation) {
  const auto rules = rules_of_guide();
  ASSERT_FALSE(rules.empty());
  for (const FieldPath& one : all_fields(RunConfig::descriptor())) {
    if (one.field->message_type() || one.path == "run_dir") continue;
    SCOPED_TRACE(one.path);
    const auto [a, b] = pair_for(one.path);
    const auto differences = config_differences(a, b);
    ASSERT_FALSE(differences.empty());  // a difference of the oneof comes before the field
    EXPECT_EQ(differences.back().path, one.path);
    EXPECT_EQ(differences.back().on_resume, rule_in(rules, without_indices(one.path)));
  }
}

TEST(ResumeRules, EveryOneofFollowsTheDocumentation) {
  const auto rules = rules_of_guide();
  int choices = 0;
  for (const FieldPath& one : all_fields(RunConfig::descriptor())) {
    const auto* choice = one.field->containing_oneof();
    if (!choice || !one.field->message_type()) continue;
    SCOPED_TRACE(one.path);
    const auto [chosen, same] = pair_for(one.path);
    const auto [none, nothing] = pair_for(parent_of(one.path));
    const auto differences = config_differences(none, chosen);
    ASSERT_FALSE(differences.empty());
    EXPECT_EQ(differences[0].b, one.field->name());
    EXPECT_EQ(differences[0].on_resume, rule_in(rules, without_indices(one.path)));
    ++choices;
  }
  EXPECT_GT(choices, 50);
}

// --- Messages of a run that resumes ---

const char* const kText = R"(
seed: 1
model { network {
  layer { conv2d { channels: 4 kernel: 3 } }
  layer { name: "norm" batch_norm {} }
  layer { relu {} }
  layer { flatten {} }
  layer { dropout { rate: 0.3 } }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
data { synthetic { shape: [1, 8, 8] } }
batch { global: 32 }
train { epochs: 10 }
optimizer { sgd { momentum: 0.9 } }
schedule { learning_rate: 0.1 cosine {} }
)";
constexpr int64_t kSamples = 320;

// Returns the checkpoint of a run with the assignments `before` on two ranks, after 3 epochs.
FoundCheckpoint checkpoint_of(const Words& before) {
  FoundCheckpoint found;
  found.path = "runs/a/checkpoints/step-00000030";
  found.state.step = 30;
  found.state.epoch = 3;
  found.state.ranks = 2;
  const RunConfig config = parse_config(kText, "run.txtpb", before).run;
  found.state.config = to_text(config);
  found.state.config_hash = config_hash(config);
  return found;
}

Words changes_since(const FoundCheckpoint& checkpoint, const Words& now, int ranks = 2) {
  const Config config = parse_config(kText, "run.txtpb", now);
  const model::Graph graph = model::build_graph(
      config.run.model(), {.input = {DType::kF32, Shape{1, 8, 8}, Layout::row_major()},
                           .target = {DType::kI32, Shape{}, Layout::row_major()},
                           .classes = 10});
  return check_changes(checkpoint, {config, graph, ranks, kSamples});
}

Words changes(const Words& before, const Words& now, int ranks = 2) {
  return changes_since(checkpoint_of(before), now, ranks);
}

std::string refusal(const Words& before, const Words& now) {
  try {
    changes(before, now);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(ResumeCheck, ReportsNothingIfNothingChanged) { EXPECT_EQ(changes({}, {}), Words{}); }

TEST(ResumeCheck, ReportsChangesThatAffectTheRestOfTheTraining) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"seed=2", "seed: 1 -> 2"},
      {"batch.micro=8", "batch.micro: unset -> 8"},
      {"train.precision=BF16", "train.precision: FP32 -> BF16"},
      {"train.clip_norm=5", "train.clip_norm: 0 -> 5"},
      {"train.max_steps=50", "train.max_steps: unset -> 50"},
      {"optimizer.weight_decay=0.5", "optimizer.weight_decay: 0 -> 0.5"},
      {"optimizer.decay_bias_and_norm=true", "optimizer.decay_bias_and_norm: false -> true"},
      {"optimizer.sgd.momentum=0.5", "optimizer.sgd.momentum: 0.9 -> 0.5"},
      {"optimizer.sgd.nesterov=true", "optimizer.sgd.nesterov: false -> true"},
      {"buckets.precision=BF16", "buckets.precision: FP32 -> BF16"},
      {"model.network.layer[1].batch_norm.sync=true",
       "model.network.layer[1].batch_norm.sync: false -> true"},
      {"model.network.layer[4].dropout.rate=0.5",
       "model.network.layer[4].dropout.rate: 0.3 -> 0.5"},
      {"model.network.layer[6].softmax_cross_entropy.label_smoothing=0.5",
       "model.network.layer[6].softmax_cross_entropy.label_smoothing: 0 -> 0.5"},
      {"data.shuffle=false", "data.shuffle: true -> false"},
      {"data.decode.apply_exif_orientation=false",
       "data.decode.apply_exif_orientation: true -> false"},
      {"data.shuffle_window={}", "data: unset -> shuffle_window"},
      {"data.mix.mixup_alpha=0.5", "data.mix.mixup_alpha: 0 -> 0.5"},
      {"data.normalize.mean=0.5", "data.normalize.mean: unset -> [0.5]"},
      {"data.transform[0]={horizontal_flip {}}", "data.transform[0]: unset -> horizontal_flip"},
      {"data=idx", "data: synthetic -> idx"},
      {"data.synthetic.noise=0.25", "data.synthetic.noise: 0.5 -> 0.25"},
  };
  for (const auto& [assignment, line] : cases) {
    EXPECT_EQ(changes({}, {assignment}), Words{line}) << assignment;
  }
}

TEST(ResumeCheck, ReportsAJumpOfTheLearningRate) {
  EXPECT_EQ(changes({}, {"schedule.learning_rate=0.01"}),
            (Words{"schedule.learning_rate: 0.1 -> 0.01",
                   "learning rate of the next step: 0.0793893 -> 0.00793893"}));
  EXPECT_EQ(
      changes({}, {"schedule=constant"}),
      (Words{"schedule: cosine -> constant", "learning rate of the next step: 0.0793893 -> 0.1"}));
  EXPECT_EQ(
      changes({}, {"train.epochs=20"}),
      (Words{"train.epochs: 10 -> 20", "learning rate of the next step: 0.0793893 -> 0.0945503"}));
  // With twice the batch, 3 of 10 epochs are still 3 of 10 epochs.
  EXPECT_EQ(changes({}, {"batch.global=64"}), Words{"batch.global: 32 -> 64"});
  // A milestone in steps is twice as far.
  EXPECT_EQ(
      changes({"schedule.step={steps: 20}"}, {"schedule.step={steps: 20}", "batch.global=64"}),
      (Words{"batch.global: 32 -> 64", "learning rate of the next step: 0.01 -> 0.1"}));
}

TEST(ResumeCheck, RejectsChangesOfTheNetworkOptimizerAndTask) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"optimizer=adam", "--set: optimizer: sgd -> adam"},
      {"model.network.layer[2]={gelu {}}", "--set: model.network.layer[2]: relu -> gelu"},
      {"model.network.layer[0].conv2d.channels=8",
       "--set: model.network.layer[0].conv2d.channels: 4 -> 8"},
      {"model.network.layer[1].batch_norm.epsilon=1e-3",
       "--set: model.network.layer[1].batch_norm.epsilon: 1e-05 -> 0.001"},
      {"model.network.layer[1].name=other", "--set: model.network.layer[1].name: \"norm\" -> "},
      {"model.freeze=norm.*", "--set: model.freeze: unset -> [\"norm.*\"]"},
      {"data.holdout=0.1", "--set: data.holdout: unset -> 0.1"},
      {"data.holdout_seed=2", "--set: data.holdout_seed: 1 -> 2"},
  };
  for (const auto& [assignment, line] : cases) {
    const std::string error = refusal({}, {assignment});
    EXPECT_NE(error.find("\n  " + line), std::string::npos) << error;
    EXPECT_NE(error.find("--init-from runs/a/checkpoints/step-00000030"), std::string::npos);
  }
  EXPECT_NE(refusal({"data=cifar"}, {"data=cifar", "data.cifar.variant=CIFAR100"}), "no error");
  EXPECT_EQ(refusal({}, {"seed=2"}), "no error");
}

TEST(ResumeCheck, TruncatesALongListOfChanges) {
  Words renamed;
  for (int i = 0; i < 7; ++i)
    renamed.push_back("model.network.layer[" + std::to_string(i) + "].name=x" + std::to_string(i));
  for (const char* more : {"[0].conv2d.channels=8", "[0].conv2d.padding=1", "[0].conv2d.bias=false",
                           "[1].batch_norm.epsilon=1e-3", "[2]={gelu {}}"}) {
    renamed.push_back(std::string("model.network.layer") + more);
  }
  const std::string error = refusal({}, renamed);
  EXPECT_NE(error.find("\n  and 2 more\n"), std::string::npos) << error;
  EXPECT_EQ(std::ranges::count(error, '\n'), 12);
}

TEST(ResumeCheck, IgnoresChangesThatDoNotAffectResults) {
  const Words free = {"run_dir=elsewhere",
                      "data.root=/elsewhere",
                      "data.threads=3",
                      "data.prefetch=9",
                      "data.on_bad_record=SKIP",
                      "data.max_bad_records=5",
                      "train.device=cpu",
                      "train.threads=1",
                      "train.eval_every_epochs=3",
                      "train.eval_every_steps=3",
                      "train.log_every_steps=3",
                      "train.transport=mpi",
                      "train.eager=true",
                      "checkpoint.every_steps=5",
                      "checkpoint.keep=9",
                      "checkpoint.on_error=STOP",
                      "buckets.bytes=1000",
                      "checks.non_finite=SKIP",
                      "watchdog.timeout_seconds=5",
                      "metrics.csv=true",
                      "model.network.name=other",
                      "model.init_from=other",
                      "model.network.layer[0].conv2d.weight_init={constant {}}",
                      "model.network.layer[1].batch_norm.weight_init={constant {}}",
                      "model.network.layer[5].dense.bias_init={constant {}}"};
  for (const std::string& assignment : free) {
    EXPECT_EQ(changes({}, {assignment}), Words{}) << assignment;
  }
}

// --- Ranks ---

TEST(ResumeCheck, ReportsOtherSamplesOfTheStatisticsOfBatchNorm) {
  const auto line = [](const std::string& before, const std::string& now) {
    return Words{"samples of the statistics of batch norm (layer 'norm'): " + before + " -> " +
                 now};
  };
  // Micro-batches on several ranks, also with sync.
  Words synchronized = {"model.network.layer[1].batch_norm.sync=true", "batch.micro=4"};
  EXPECT_EQ(
      changes(synchronized, synchronized, 1),
      line("micro-batches of 4 samples on all 2 ranks together", "micro-batches of 4 samples"));
  // A stage has about 4 micro-batches.
  EXPECT_EQ(changes({}, {"parallel.stages=2"}, 2),
            line("16 samples of each of 2 ranks", "micro-batches of 4 samples"));
  EXPECT_EQ(changes({"parallel.stages=2"}, {"parallel.stages=2"}, 4),
            line("micro-batches of 4 samples", "micro-batches of 2 samples of each of 2 ranks"));
  EXPECT_EQ(changes({"model.freeze=norm.*"}, {"model.freeze=norm.*", "parallel.stages=2"}, 2),
            Words{});
}

TEST(ResumeCheck, ReportsAChangeOfRanksIfBatchNormIsNotSynchronized) {
  EXPECT_EQ(changes({}, {}, 2), Words{});
  const Words lines = changes({}, {}, 3);
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0],
            "samples of the statistics of batch norm (layer 'norm'): 16 samples of each of 2 ranks "
            "-> 11 samples of each of 3 ranks");
  const Words synchronized = {"model.network.layer[1].batch_norm.sync=true"};
  EXPECT_EQ(changes(synchronized, synchronized, 3), Words{});
  const Words frozen = {"model.freeze=norm.*"};
  EXPECT_EQ(changes(frozen, frozen, 3), Words{});
}

// --- Checkpoints without their configuration ---

class OldCheckpoint : public ::testing::Test {
 protected:
  OldCheckpoint() : checkpoint_(checkpoint_of({})) {
    checkpoint_.path = folder_.path() / "checkpoints" / "step-00000030";
    checkpoint_.state.config.clear();
  }
  void run_has(const Words& assignments) const {
    spill(folder_.path() / "config.txtpb",
          to_text(parse_config(kText, "run.txtpb", assignments).run));
  }

  TemporaryFolder folder_;
  FoundCheckpoint checkpoint_;
};

TEST_F(OldCheckpoint, IsComparedWithTheConfigurationOfItsRun) {
  run_has({});
  EXPECT_EQ(changes_since(checkpoint_, {}), Words{});
  EXPECT_EQ(changes_since(checkpoint_, {"seed=2"}), Words{"seed: 1 -> 2"});
}

TEST_F(OldCheckpoint, IsNotComparedWithALaterConfiguration) {
  run_has({"seed=3"});
  EXPECT_EQ(changes_since(checkpoint_, {}), Words{});
  const Words lines = changes_since(checkpoint_, {"seed=2"});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("has changed since"), std::string::npos) << lines[0];
}

TEST_F(OldCheckpoint, ResumesWithoutAnyConfiguration) {
  EXPECT_EQ(changes_since(checkpoint_, {}), Words{});
  const Words lines = changes_since(checkpoint_, {"seed=2"});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("there is no "), std::string::npos) << lines[0];
}

std::string replace_all(std::string text, const std::string& from, const std::string& to) {
  EXPECT_NE(text.find(from), std::string::npos) << from << "\nin\n" << text;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

std::string with_old_names(std::string config) {
  config = replace_all(std::move(config), "std: [", "deviation: [");
  config = replace_all(std::move(config), "loss_spike_stds:", "loss_spike_deviations:");
  return replace_all(std::move(config), "min_learning_rate:", "minimum:");
}

const Words kRenamed = {"data.normalize.std=2", "schedule.cosine.min_learning_rate=0.01"};

TEST(ResumeCheck, AcceptsOldFieldNamesInASavedConfiguration) {
  FoundCheckpoint checkpoint = checkpoint_of(kRenamed);
  checkpoint.state.config = with_old_names(checkpoint.state.config);
  EXPECT_EQ(changes_since(checkpoint, kRenamed), Words{});
  EXPECT_EQ(changes_since(checkpoint, {"data.normalize.std=3", kRenamed[1]}),
            Words{"data.normalize.std: [2] -> [3]"});
}

TEST_F(OldCheckpoint, IsComparedWithAConfigurationWithOldFieldNames) {
  checkpoint_.state.config_hash = checkpoint_of(kRenamed).state.config_hash;
  spill(folder_.path() / "config.txtpb", with_old_names(checkpoint_of(kRenamed).state.config));
  EXPECT_EQ(changes_since(checkpoint_, kRenamed), Words{});
  EXPECT_EQ(changes_since(checkpoint_, {"data.normalize.std=3", kRenamed[1]}),
            Words{"data.normalize.std: [2] -> [3]"});
}

TEST(ResumeCheck, ResumesFromAConfigurationWithUnknownFields) {
  FoundCheckpoint checkpoint = checkpoint_of({});
  checkpoint.state.config += "hologram: 3\n";
  EXPECT_EQ(changes_since(checkpoint, {}), Words{});
  const Words lines = changes_since(checkpoint, {"seed=2"});
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("hologram"), std::string::npos) << lines[0];
}

}  // namespace
}  // namespace trireme::train
