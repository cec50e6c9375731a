// Training with some of the parameters frozen, on every rank and kind of device.
#include <map>

#include "runs.h"
#include "step_fixture.h"
#include "trainer/checkpoint/safetensors.h"

namespace trireme::train {
namespace {

// With momentum, weight decay of all parameters and batch norms without sync, which could all
// change frozen parameters by mistake.
const std::string kFrozen = R"(
model {
  network {
    layer { name: "conv1" conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
    layer { name: "bn1" batch_norm {} }
    layer { name: "relu1" relu {} }
    layer { name: "conv2" conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
    layer { name: "bn2" batch_norm {} }
    layer { name: "relu2" relu {} }
    layer { name: "flatten" flatten {} }
    layer { name: "fc" dense { units: 10 } }
    layer { name: "loss" softmax_cross_entropy {} }
  }
  freeze: "(conv|bn)1.*"
}
optimizer { sgd { momentum: 0.9 } weight_decay: 0.1 decay_bias_and_norm: true }
schedule { learning_rate: 0.02 }
)";

bool is_frozen(const std::string& name) {
  return name.starts_with("conv1.") || name.starts_with("bn1.");
}

using Tensors = std::map<std::string, std::vector<float>>;

Tensors tensors_in(const fs::path& file) {
  const SafetensorsReader reader(file);
  Tensors tensors;
  for (const std::string& name : reader.names()) tensors[name] = reader.read(name);
  return tensors;
}

class FreezeTest : public RunTest {
 protected:
  // The initial values, which depend only on the seed.
  Tensors initial() const {
    StepFixture fixture(*world_, kFrozen + kCommon, {"train.device=" + GetParam()});
    Tensors tensors;
    const StateArrays& state = fixture.step().state();
    for (const StateArrays::Array& array : state.model()) {
      for (const StateArrays::Tensor& tensor : array.tensors) {
        std::vector<float>& values = tensors[tensor.name];
        values.resize(static_cast<size_t>(tensor.spec.shape.elements()));
        state.get(tensor, values);
      }
    }
    return tensors;
  }
};

TEST_P(FreezeTest, OnlyTrainedValuesChange) {
  const Tensors before = initial();
  run(kFrozen, "run", {"train.max_steps=8", "batch.micro=10"});
  run(kFrozen, "run", {"train.max_steps=14", "batch.micro=10"});  // resumes
  if (world_->rank() != 0) return;
  const Tensors after = tensors_in(checkpoint("run", 14) / "model.safetensors");
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, values] : after) {
    EXPECT_EQ(values == before.at(name), is_frozen(name)) << name;
  }
  const Tensors velocity = tensors_in(checkpoint("run", 14) / "optimizer.safetensors");
  EXPECT_EQ(velocity.size(), 5u);
  for (const auto& [name, values] : velocity) {
    EXPECT_FALSE(is_frozen(name.substr(name.find('.') + 1))) << name;
  }
}

TEST_P(FreezeTest, ResumedRunsAreBitwiseEqual) {
  // Both runs average running statistics over ranks at the same checkpoints.
  run(kFrozen, "straight", {"train.max_steps=14", "checkpoint.every_steps=6"});
  run(kFrozen, "halves", {"train.max_steps=6"});
  run(kFrozen, "halves", {"train.max_steps=14"});
  EXPECT_EQ(trace("straight").size(), 14u);
  EXPECT_EQ(trace("straight"), trace("halves"));
  EXPECT_EQ(model("straight", 14), model("halves", 14));
}

// With all norms frozen, no statistics depend on how the batch is divided among ranks.
TEST_P(FreezeTest, RanksTogetherEqualOneRank) {
  const std::vector<std::string> norms = {"model.freeze=conv1.weight,bn[12]\\..*",
                                          "train.max_steps=26"};
  run_alone(kFrozen, "alone", norms);
  run(kFrozen, "together", norms);
  expect_same_losses("alone", "together", 26);
}

TEST_P(FreezeTest, FrozenParametersNeedNoGradientsOrOptimizerState) {
  const auto memory = [&](const std::vector<std::string>& assignments) {
    std::vector<std::string> all = assignments;
    all.push_back("train.device=" + GetParam());
    StepFixture fixture(*world_, kFrozen + kCommon, all);
    EXPECT_EQ(fixture.step().buckets().back().end, fixture.step().parameters().trained_elements);
    return fixture.step().memory_bytes();
  };
  const StepMemory partly_frozen = memory({"model.freeze=[^f].*"});
  const StepMemory mostly_trained = memory({"model.freeze=fc.bias"});
  // Two convolutions of 8x3x3x3 and 8x8x3x3, which blocked layouts may pad.
  constexpr size_t kMinBytes = (8 * 3 * 9 + 8 * 8 * 9) * sizeof(float);
  EXPECT_GE(mostly_trained.gradients - partly_frozen.gradients, kMinBytes);
  EXPECT_GE(mostly_trained.optimizer - partly_frozen.optimizer, kMinBytes);
  EXPECT_EQ(mostly_trained.parameters, partly_frozen.parameters);
  EXPECT_LT(partly_frozen.activations, mostly_trained.activations);
}

TEST_P(FreezeTest, RejectsCheckpointsWithOtherFrozenParameters) {
  run(kFrozen, "run", {"train.max_steps=4"});
  expect_agreed_error(
      [&] {
        run(kFrozen, "run", {"train.max_steps=8", "model.freeze=conv2.weight"});
      },
      ExitCode::kBadConfig, R"(model.freeze: ["(conv|bn)1.*"] -> ["conv2.weight"])");
}

TRIREME_ON_ALL_DEVICES(FreezeTest);

}  // namespace
}  // namespace trireme::train
