// End-to-end tests of `trireme config check`, `show` and `diff`.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/data/images.h"
#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

const std::string kConfigs = TRIREME_SOURCE "/launch/configs/";
const std::string kDigits = "data.root=" TRIREME_SOURCE "/data/digits";

const char* const kTiny = R"(
model { zoo { name: "mlp" hidden: 16 } }
data { synthetic { shape: [8] count: 100 eval_count: 10 } }
batch { global: 32 }
train { epochs: 2 }
schedule { learning_rate: 0.1 }
)";

bool says(const Outcome& outcome, const std::string& words) {
  return outcome.out.find(words) != std::string::npos;
}

TEST(ConfigCheck, PrintsThePlannedRun) {
  const Outcome digits =
      run({"config", "check", kConfigs + "digits.txtpb", "--set", kDigits, "--ranks", "2"});
  ASSERT_EQ(digits.code, 0) << digits.error;
  for (const char* words :
       {"digits-cnn: 43.05 k parameters, input [1, 8, 8], 10 classes, FP32", "of which 1438",
        "of which 359", "64 over 2 ranks, 23 steps per epoch, 460 in total",
        "per rank: parameters ",
        "checked   fields; train: 1438 of 1438 samples; eval: 359 of 359 samples; network; memory; "
        "run_dir",
        "skipped   other hosts", "no problems found"}) {
    EXPECT_TRUE(says(digits, words)) << words << " in\n" << digits.out;
  }
}

// The current folder has neither the configuration nor its data.
TEST(ConfigCheck, FindsInstalledConfigurationsByName) {
  const Scratch scratch;
  const fs::path before = fs::current_path();
  fs::current_path(scratch.path());
  const Outcome digits = run({"config", "check", "digits.txtpb"});
  EXPECT_EQ(digits.code, 0) << digits.error;
  EXPECT_TRUE(says(digits, "share/trireme/data/digits/digits.csv.gz")) << digits.out;

  const Outcome mistyped = run({"config", "check", "digit.txtpb"});
  EXPECT_EQ(mistyped.code, 2);
  EXPECT_EQ(mistyped.error,
            "trireme: digit.txtpb: cannot be read: No such file or directory; did you mean "
            "'digits.txtpb'?\n");
  EXPECT_NE(run({"inspect", "digit.txtpb"}).error.find("did you mean 'digits.txtpb'?"),
            std::string::npos);
  EXPECT_EQ(run({"inspect", "nope.txtpb"}).error,
            "trireme: nope.txtpb: is neither a file nor a network of the zoo\n");
  EXPECT_NE(run({"inspect", "resnet5"}).error.find("did you mean 'resnet50'?"), std::string::npos);
  EXPECT_EQ(run({"inspect", "digits.txtpb"}).code, 0);
  fs::current_path(before);
}

TEST(ConfigCheck, AcceptsEveryConfigurationOfTheProjectWithoutData) {
  int built = 0;
  for (const auto& entry : fs::directory_iterator(kConfigs)) {
    const Outcome check = run({"config", "check", entry.path().string(), "--no-data"});
    EXPECT_EQ(check.code, 0) << entry.path() << check.error;
    EXPECT_TRUE(says(check, "no problems found")) << check.out;
    EXPECT_TRUE(says(check, "skipped   ")) << check.out;
    built += says(check, " parameters, input ");
  }
  EXPECT_GE(built, 5);
}

TEST(ConfigCheck, ReportsErrorsInConfigurationAndData) {
  const Scratch scratch;
  const std::string wrong =
      scratch.write("wrong.txtpb", std::string(kTiny) + "optimizer { momentum: 0.9 }\n");
  const Outcome field = run({"config", "check", wrong});
  EXPECT_EQ(field.code, 2);
  EXPECT_NE(field.error.find("wrong.txtpb:7: optimizer.momentum: no such field; did you mean "
                             "'optimizer.sgd.momentum' or 'optimizer.lars.momentum'?"),
            std::string::npos)
      << field.error;

  const std::string tiny = scratch.write("tiny.txtpb", kTiny);
  // Neither the network nor the batch fits.
  EXPECT_EQ(run({"config", "check", tiny, "--set", "model.zoo.name=lenet"}).code, 2);
  EXPECT_EQ(run({"config", "check", tiny, "--ranks", "64"}).code, 2);
  const Outcome data = run({"config", "check", kConfigs + "mnist.txtpb", "--set",
                            "data.root=" + (scratch / "none").string()});
  EXPECT_NE(data.code, 0);
  EXPECT_NE(data.error.find("data.root"), std::string::npos) << data.error;
}

TEST(ConfigCheck, SaysOverWhichSamplesBatchNormComputesStatistics) {
  const Scratch scratch;
  const std::string file = scratch.write("norm.txtpb", R"(
model { network {
  layer { dense { units: 8 } } layer { name: "norm" batch_norm {} } layer { relu {} }
  layer { dense { units: 4 } } layer { softmax_cross_entropy {} }
} }
data { synthetic { shape: [8] classes: 4 count: 64 eval_count: 16 } }
batch { global: 16 } train { epochs: 1 device: "cpu" } schedule { learning_rate: 0.1 }
)");
  const auto check = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"config", "check", file});
    return run(more);
  };
  EXPECT_EQ(check({"--ranks", "2"}).out.find("warning"), std::string::npos);
  const std::string warning =
      "warning   batch norm (layer 'norm') computes its statistics over micro-batches of ";
  for (const char* const many : {"batch.micro=2", "parallel.stages=2"}) {
    const Outcome outcome = check({"--ranks", "2", "--set", many});
    EXPECT_EQ(outcome.code, 0) << outcome.error;
    EXPECT_NE(outcome.out.find(warning + "2 samples"), std::string::npos) << outcome.out;
  }
  const Outcome single = check({"--set", "batch.micro=1"});
  EXPECT_EQ(single.code, 2);
  EXPECT_NE(single.error.find("batch.micro: batch norm (layer 'norm') would compute statistics of "
                              "one sample in a step: "),
            std::string::npos)
      << single.error;
}

// Each of these errors ends `trireme train` before its first step.
TEST(ConfigCheck, FindsErrorsThatPreventTraining) {
  const Scratch scratch;
  const std::string tiny = scratch.write("tiny.txtpb", kTiny);
  const auto refused = [&](std::vector<std::string> more, int code, const std::string& words) {
    more.insert(more.begin(), {"config", "check", tiny});
    const Outcome check = run(more);
    EXPECT_EQ(check.code, code) << words << check.out << check.error;
    EXPECT_NE(check.error.find(words), std::string::npos) << words << " in\n" << check.error;
  };
  refused({"--set", "batch.global=1000000000000"}, 2, "batch.global: a rank needs ");
  refused({"--set", "data.shuffle_window={ block: 4 window: 2 }"}, 2, "data.shuffle_window.window");
  scratch.write("file", "");
  refused({"--run-dir", (scratch / "file/run").string()}, 2, "run_dir: ");
  refused({"--run-dir", "/proc/none/run"}, 2, "run_dir: ");
  refused({"--set", "train.early_stopping={monitor: 'bits_per_byte'}"}, 2,
          "train.early_stopping.monitor: 'bits_per_byte' is not measured");
  refused({"--set", "model.init_from=" + (scratch / "none.safetensors").string()}, 2, "none.saf");
  refused({"--set", "train.transport=nccl", "--device", "cpu"}, 2, "train.transport: nccl needs a");
  // With --no-data, problems of this machine are only warnings.
  const Outcome elsewhere = run(
      {"config", "check", kConfigs + "imagenet.txtpb", "--no-data", "--set", "train.device=cpu"});
  EXPECT_EQ(elsewhere.code, 0) << elsewhere.error;
}

// `trireme train` trained with rates of 8e-10 to 8e-9, and neither command warned.
TEST(ConfigCheck, WarnsOfAScheduleThatDoesNotReachItsRate) {
  const Scratch scratch;
  const std::string tiny = scratch.write("tiny.txtpb", kTiny);  // 8 steps
  const auto warning = [&](const std::string& schedule) {
    const Outcome check = run({"config", "check", tiny, "--set", "schedule=" + schedule});
    EXPECT_EQ(check.code, 0) << check.error;
    const size_t at = check.out.find("warning ");
    return at == std::string::npos ? "" : check.out.substr(at, check.out.find('\n', at) - at);
  };
  EXPECT_EQ(warning("{one_cycle {}}"), "");
  EXPECT_EQ(
      warning("{one_cycle {} warmup {steps: 8}}"),
      "warning   schedule.warmup: takes 8 steps, but the run has 8, so the warmup is not over "
      "before the end");
  EXPECT_NE(warning("{one_cycle {} warmup {steps: 7}}").find("is never reached: the highest rate"),
            std::string::npos);
  const Outcome trained = run({"train", tiny, "--run-dir", (scratch / "run").string(), "--set",
                               "schedule={one_cycle {} warmup {steps: 7}}"});
  EXPECT_EQ(trained.code, 0) << trained.error;
  EXPECT_NE(trained.out.find("warning: schedule.learning_rate: "), std::string::npos)
      << trained.out;
}

// 32 samples were read, and none of the limit of bad records was considered.
TEST(ConfigCheck, FindsABadSampleAnywhereInASmallSet) {
  const Scratch scratch;
  std::string tokens(4000, '\0');  // 2000 tokens
  tokens[2 * 1037] = 60;
  scratch.write("t.bin", tokens);
  const std::string path = scratch.write("run.txtpb", R"(
model { network {
  layer { embedding { units: 4 } }
  layer { dense {} }
  layer { softmax_cross_entropy {} }
} }
data { root: ")" + scratch.path().string() + R"("
  tokens { train: "t.bin" eval: "t.bin" length: 10 vocab_size: 50 kind: UINT16 } }
batch { global: 8 }
train { epochs: 1 }
schedule { learning_rate: 0.1 }
)");
  const Outcome check = run({"config", "check", path});
  EXPECT_EQ(check.code, 3) << check.out;
  EXPECT_NE(check.error.find("60 is not in the vocabulary, [0, 50)"), std::string::npos)
      << check.error;
  const std::vector<std::string> skip = {"config",
                                         "check",
                                         path,
                                         "--set",
                                         "data.on_bad_record=SKIP",
                                         "--set",
                                         "data.max_bad_records=0"};
  const Outcome limited = run(skip);
  EXPECT_EQ(limited.code, 3) << limited.out;
  EXPECT_NE(limited.error.find("more than data.max_bad_records, 0"), std::string::npos)
      << limited.error;
}

// The last stage has most of the parameters.
TEST(ConfigCheck, ComparesTheMemoryOfAllStages) {
  const Scratch scratch;
  const std::string tiny = scratch.write("tiny.txtpb", kTiny);
  const auto with_limit = [&](const char* command, int bytes) {
    std::vector<std::string> words{command, tiny, "--ranks", "2"};
    if (command == std::string("check")) words.insert(words.begin(), "config");
    for (const std::string& field :
         {std::string("model.zoo.hidden=4,400"), std::string("parallel.stages=2"),
          std::string("parallel.cut_after=fc1"), "memory.limit_bytes=" + std::to_string(bytes)}) {
      words.insert(words.end(), {"--set", field});
    }
    return run(words);
  };
  const Outcome fits = with_limit("check", 1'000'000);
  EXPECT_EQ(fits.code, 0) << fits.error;
  EXPECT_TRUE(says(fits, "per rank of stage 1, which needs most")) << fits.out;
  const Outcome refused = with_limit("check", 40'000);
  EXPECT_EQ(refused.code, 2) << refused.out;
  EXPECT_NE(refused.error.find("a rank needs "), std::string::npos) << refused.error;
  // The limit that the message names is one with which all stages fit.
  const std::string wanted = "memory.limit_bytes: ";
  const size_t at = refused.error.rfind(wanted);
  ASSERT_NE(at, std::string::npos) << refused.error;
  const int enough = std::stoi(refused.error.substr(at + wanted.size()));
  EXPECT_EQ(with_limit("check", enough).code, 0);
  EXPECT_EQ(with_limit("check", enough - 1).code, 2);
  const Outcome inspected = with_limit("inspect", 40'000);
  EXPECT_NE(inspected.error.find("warning: "), std::string::npos) << inspected.out;
}

// All commands that would allocate the memory check it first.
TEST(ConfigCheck, ReportsTheCauseIfMemoryDoesNotSuffice) {
  const Scratch scratch;
  const std::string file = scratch.write("large.txtpb", R"(
model { network { layer { name: "wide" dense { units: 100 } } layer { name: "out" dense {} }
                  layer { softmax_cross_entropy {} } } }
data { synthetic { shape: [24] count: 100 eval_count: 10 } }
batch { global: 32 }
train { epochs: 2 device: "cpu" }
optimizer { adam {} }
schedule { learning_rate: 0.1 }
)");
  const std::string folder = (scratch / "run").string();
  struct Case {
    std::vector<std::string> set;
    std::string words;
  };
  for (const auto& [set, words] :
       std::vector<Case>{{{"model.network.layer[0].dense.units=1000000000000"},
                          "large.txtpb:2: model: a rank needs at least "},
                         {{"model.network.layer[0].dense.units=1000000000000"},
                          "layer 'wide' has the most of them; make that layer smaller"},
                         {{"batch.global=100000000000"}, "batch.global: a rank needs at least "},
                         {{"batch.global=100000000000", "batch.micro=10000000000"},
                          "batch.micro: a rank needs at least "}}) {
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"config", "check", file},
          {"inspect", file},
          {"train", file, "--run-dir", folder}}) {
      std::vector<std::string> words_of_command = command;
      for (const std::string& one : set) {
        words_of_command.insert(words_of_command.end(), {"--set", one});
      }
      const Outcome outcome = run(words_of_command);
      EXPECT_EQ(outcome.code, 2) << command[0] << outcome.out;
      EXPECT_NE(outcome.error.find(words), std::string::npos) << command[0] << outcome.error;
    }
  }
  EXPECT_FALSE(fs::exists(folder));
}

// With the settings that the message names, the same commands succeed.
TEST(ConfigCheck, NamesSettingsWithWhichAPlanFits) {
  const Scratch scratch;
  const std::string file = scratch.write("run.txtpb", R"(
model { zoo { name: "mlp" hidden: [300, 300] } }
data { synthetic { shape: [20] count: 4096 eval_count: 10 } }
batch { global: 4096 }
train { max_steps: 1 device: "cpu" }
optimizer { adam {} }
schedule { learning_rate: 0.001 }
memory { limit_bytes: 7000000 }
)");
  const std::string folder = (scratch / "run").string();
  std::string settings;
  for (const std::vector<std::string>& command :
       {std::vector<std::string>{"config", "check", file}, {"train", file, "--run-dir", folder}}) {
    const Outcome refused = run(command);
    EXPECT_EQ(refused.code, 2) << refused.out;
    const size_t at = refused.error.find("this would fit: batch.micro: ");
    ASSERT_NE(at, std::string::npos) << refused.error;
    settings = refused.error.substr(refused.error.find("micro: ") + 7);
    EXPECT_NE(refused.error.find(" or memory.limit_bytes: "), std::string::npos) << refused.error;
    std::vector<std::string> fitting = command;
    fitting.insert(fitting.end(),
                   {"--set", "batch.micro=" + settings.substr(0, settings.find(' '))});
    const Outcome accepted = run(fitting);
    EXPECT_EQ(accepted.code, 0) << accepted.error;
  }
}

// A single rank would fit.
TEST(ConfigCheck, RanksOfOneHostShareItsMemory) {
  const Scratch scratch;
  const std::string tiny = scratch.write("tiny.txtpb", kTiny);
  std::vector<std::string> check = {
      "config", "check", tiny, "--set", "train.device=cpu", "--set", "optimizer={adam{}}",
      "--ranks"};
  check.insert(check.end(), {"10000", "--set", "batch.global=10000"});
  EXPECT_EQ(run(check).code, 0);
  // 10,000 times 0.3 GiB.
  check.insert(check.end(), {"--set", "model.zoo={name:'mlp' hidden:[4000,4000]}"});
  const Outcome shared = run(check);
  EXPECT_EQ(shared.code, 2) << shared.out;
  EXPECT_NE(shared.error.find("model: the 10000 ranks of this host need "), std::string::npos)
      << shared.error;
}

TEST(ConfigCheck, ReadsSomeSamplesOfEachPart) {
  const Scratch scratch;
  for (const char* part : {"train", "val"}) {
    for (int i = 0; i < 40; ++i) {
      const bool odd = i == 39 && std::string(part) == "val";
      TestImage image = noisy({odd ? 9 : 8, 8}, 3, static_cast<uint32_t>(i));
      const std::vector<uint8_t> bytes = data::encode_png(image.view());
      const fs::path file = scratch / "data" / part / (i % 2 == 0 ? "a" : "b") /
                            ("image" + std::to_string(100 + i) + ".png");
      fs::create_directories(file.parent_path());
      std::ofstream(file, std::ios::binary)
          .write(reinterpret_cast<const char*>(bytes.data()),
                 static_cast<std::streamsize>(bytes.size()));
    }
  }
  const std::string config = scratch.write("run.txtpb", R"(
model { zoo { name: "mlp" hidden: 16 } }
data { image_folder {} root: ")" + (scratch / "data").string() +
                                                            R"(" }
batch { global: 32 }
train { epochs: 2 }
schedule { learning_rate: 0.1 }
)");
  const Outcome check = run({"config", "check", config});
  EXPECT_EQ(check.code, 3) << check.out;
  EXPECT_NE(check.error.find("image139.png"), std::string::npos) << check.error;
  EXPECT_EQ(run({"train", config, "--run-dir", (scratch / "run").string()}).code, 3);
  const Outcome skipping = run({"config", "check", config, "--set", "data.on_bad_record=SKIP"});
  EXPECT_EQ(skipping.code, 0) << skipping.error;
  EXPECT_TRUE(says(skipping, "1 of them bad; the first: ")) << skipping.out;
}

TEST(ConfigShow, PrintsAValidConfiguration) {
  const Scratch scratch;
  const std::string tiny = scratch.write("tiny.txtpb", kTiny);
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, std::vector<std::string>{"--all"}}) {
    std::vector<std::string> words = {"config", "show", tiny, "--set", "batch.global=50"};
    words.insert(words.end(), more.begin(), more.end());
    const Outcome shown = run(words);
    ASSERT_EQ(shown.code, 0) << shown.error;
    EXPECT_TRUE(says(shown, "  global: 50\n")) << shown.out;
    EXPECT_TRUE(says(shown, "precision: FP32")) << shown.out;
    const std::string file = scratch.write("shown.txtpb", shown.out);
    const Outcome same = run({"config", "diff", file, tiny});
    EXPECT_EQ(same.code, 1) << same.error;
    EXPECT_EQ(same.out.find("batch.global"), same.out.find('\n') + 1) << same.out;
  }
}

TEST(ConfigDiff, HasTheExitCodesOfDiff) {
  const Scratch scratch;
  const std::string a = scratch.write("a.txtpb", kTiny);
  const std::string b = scratch.write("b.txtpb", std::string(kTiny) + "optimizer { adam {} }\n");
  // The folder of a run stands for its configuration.
  const std::string resolved =
      run({"config", "show", a, "--set", "batch.micro=4", "--run-dir", "runs/x"}).out;
  scratch.write("run/config.txtpb", resolved);

  const Outcome same = run({"config", "diff", a, a});
  EXPECT_EQ(same.code, 0) << same.error;
  EXPECT_EQ(same.out, "");

  const Outcome different = run({"config", "diff", a, b, "--json"});
  EXPECT_EQ(different.code, 1) << different.error;
  const auto list = nlohmann::json::parse(different.out);
  EXPECT_EQ(list[0], nlohmann::json({{"path", "optimizer"}, {"a", "sgd"}, {"b", "adam"}}));

  const Outcome with_run = run({"config", "diff", a, (scratch / "run").string()});
  EXPECT_EQ(with_run.code, 1) << with_run.error;
  EXPECT_TRUE(says(with_run, "batch.micro")) << with_run.out;
  EXPECT_FALSE(says(with_run, "run_dir")) << with_run.out;

  EXPECT_EQ(run({"config", "diff", a, (scratch / "none").string()}).code, 2);
}

TEST(ConfigCommand, RunsOnOneRank) {
  const Outcome outcome = run({"config", "show", kConfigs + "mnist.txtpb"}, 2);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.error.find("one rank"), std::string::npos) << outcome.error;
}

}  // namespace
}  // namespace trireme::testing
