// LSTM and GRU with weights that PyTorch has saved have the losses of PyTorch
// (tests/golden/make_recurrent.py).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tests/launch/program.h"

namespace trireme::testing {
namespace {

using Json = nlohmann::json;

const std::string kFolder = TRIREME_SOURCE "/tests/golden/recurrent";

std::string options_of(const std::string& kind) {
  if (kind.empty()) return "";
  if (kind == "bidirectional") return "bidirectional: true";
  return kind == "stateful" ? "stateful: true" : "stateful: true document_end: 0";
}

class RecurrentLosses : public ::testing::TestWithParam<const char*> {};

TEST_P(RecurrentLosses, EqualThoseOfPyTorch) {
  const std::string name = GetParam();
  const size_t dash = name.find('-');
  const std::string cell = name.substr(0, dash);
  const std::string kind = dash == std::string::npos ? "" : name.substr(dash + 1);
  const std::string weights = kind == "bidirectional" ? name : cell;
  const Scratch scratch;
  const auto config =
      scratch.write("run.txtpb", fmt::format(R"(
    model {{
      network {{
        layer {{ name: "encoder" embedding {{ units: 6 }} }}
        layer {{ name: "rnn" {} {{ hidden: 10 layers: 2 {} }} }}
        layer {{ name: "decoder" dense {{}} }}
        layer {{ softmax_cross_entropy {{}} }}
      }}
      init_from: "{}/{}.safetensors"
    }}
    data {{
      root: "{}" shuffle: false
      text {{ train_file: "text.txt" eval_file: "text.txt" length: 16 }}
    }}
    batch {{ global: 4 }} train {{ max_steps: 20 device: "cpu" }}
    optimizer {{ sgd {{ momentum: 0.75 }} }} schedule {{ learning_rate: 0.5 }}
  )",
                                             cell, options_of(kind), kFolder, weights, kFolder));
  const Outcome outcome = run({"train", config, "--run-dir", (scratch / "run").string()});
  ASSERT_EQ(outcome.code, 0) << outcome.error;
  const Json wanted = Json::parse(read_file(kFolder + "/losses.json"))[name];
  const std::vector<std::string> losses = losses_of(scratch / "run");
  ASSERT_EQ(losses.size(), 20u);
  ASSERT_EQ(wanted.size(), 20u);
  for (size_t step = 0; step < losses.size(); ++step) {
    const auto loss = wanted[step].get<double>();
    EXPECT_NEAR(std::stod(losses[step]), loss, 1e-4 * loss) << "step " << step + 1;
  }
  EXPECT_LT(wanted.back().get<double>(), 0.95 * wanted.front().get<double>());
}

INSTANTIATE_TEST_SUITE_P(Networks, RecurrentLosses,
                         ::testing::Values("lstm", "gru", "lstm-bidirectional", "gru-bidirectional",
                                           "lstm-stateful", "gru-stateful", "lstm-documents",
                                           "gru-documents"),
                         [](const auto& tested) {
                           std::string name = tested.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace trireme::testing
