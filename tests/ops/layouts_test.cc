// How backends handle requested layouts and numbers of threads.
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

// One case of every op that uses the layout of its input.
std::vector<Case> followers(const Shape& x) {
  const int64_t n = x[1];
  const Shape halved{x[0], n, x[2] / 2, x[3] / 2};
  const auto channels = [n](uint64_t seed) { return uniform(full({n}), seed, 0.5, 2); };
  const auto values = [](const Shape& shape) { return random(image(shape), 9); };
  StepState all_valid;
  all_valid.valid_rows = static_cast<int32_t>(x[0]);
  return {
      {"activation", ActivationForward{}, {values(x), image(x)}},
      {"activation", ActivationBackward{}, {values(x), values(x), image(x)}},
      {"BN",
       BatchNormForward{.relu = true},
       {values(x), values(x), channels(1), channels(2), none(), state(), channels(3), channels(4),
        image(x), full({2 * n})},
       all_valid},
      {"BN",
       BatchNormInference{},
       {values(x), values(x), channels(1), channels(2), channels(3), channels(4), image(x)}},
      {"BN",
       BatchNormBackward{.relu = true},
       {values(x), values(x), values(x), channels(1), uniform(full({2 * n}), 2, 0.5, 2), none(),
        state(), image(x), image(x), full({n}), full({n})},
       all_valid},
      {"max pool", MaxPoolForward{}, {values(x), image(halved), workspace({}, {})}},
      {"average pool", AveragePoolForward{}, {values(x), image(halved)}},
      {"average pool", AveragePoolBackward{}, {values(halved), image(x)}},
      {"dropout", DropoutForward{}, {values(x), state(), image(x)}},
      {"dropout", DropoutBackward{}, {values(x), state(), image(x)}},
      {"add", Add{}, {values(x), values(x), image(x)}},
      {"concat", Concat{2}, {image({x[0], 2 * n, x[2], x[3]}), values(x), values(x)}},
      {"split", Split{2}, {values({x[0], 2 * n, x[2], x[3]}), image(x), image(x)}},
  };
}

class LayoutsTest : public OpsTest {
 protected:
  // The same layout for all images, for each layout that the target supports efficiently.
  std::vector<std::vector<Layout>> uniform_layouts(const Case& c) const {
    const TensorSpec any_image{GetParam().dtype, {1, 1, 1, 1}, Layout::row_major()};
    const size_t blocks = GetParam().blocked(any_image).size();
    std::vector<std::vector<Layout>> all(2 + blocks);
    for (const TestTensor& tensor : c.tensors) {
      const TensorSpec spec{GetParam().dtype, tensor.shape, Layout::row_major()};
      for (size_t i = 0; i < all.size(); ++i) {
        Layout layout = Layout::row_major();
        if (tensor.image && i == 1) layout = Layout::channels_last();
        if (tensor.image && i >= 2) layout = GetParam().blocked(spec)[i - 2];
        all[i].push_back(layout);
      }
    }
    if (!GetParam().keeps_row_major_images) all.erase(all.begin());
    return all;
  }
};

// Otherwise a network would need a reorder before each of these ops.
TEST_P(LayoutsTest, ArePreservedByLayoutIndependentOps) {
  for (const Case& c : followers({2, 32, 8, 6})) {
    for (const std::vector<Layout>& asked : uniform_layouts(c)) {
      const auto plan = target_.backend().plan(c.op, specs_of(c, asked));
      for (size_t i = 0; i < asked.size(); ++i) {
        if (c.tensors[i].image) {
          EXPECT_EQ(plan->specs()[i].layout.to_string(), asked[i].to_string())
              << c.name << ", argument " << i;
        }
      }
    }
  }
}

// Planning again with the chosen layouts must not change them.
TEST_P(LayoutsTest, DoNotChangeWhenPlannedAgain) {
  for (const Shape& x : {Shape{2, 32, 8, 6}, Shape{1, 17, 5, 4}, Shape{2, 3, 4, 4}}) {
    for (const Case& c : followers(x)) {
      for (const std::vector<Layout>& asked : variations(c)) {
        const auto first = target_.backend().plan(c.op, specs_of(c, asked));
        const auto second = target_.backend().plan(c.op, first->specs());
        EXPECT_TRUE(std::equal(first->specs().begin(), first->specs().end(),
                               second->specs().begin(), second->specs().end()))
            << name_of(c.op);
      }
    }
  }
}

// Neither random numbers nor sums may depend on the number of threads.
TEST_P(LayoutsTest, AndThreadsDoNotAffectResults) {
  std::vector<Case> cases = followers({5, 48, 6, 8});
  StepState some_valid;
  some_valid.valid_rows = 29;
  some_valid.loss_gradient_scale = 0.5f;
  const TestTensor metrics =
      with(exact(DType::kF32, {kMetricCount}), std::vector<double>(kMetricCount, 0.0));
  const TestTensor labels = uniform(exact(DType::kI32, {31}), 1, 0, 17);
  cases.push_back({"loss",
                   SoftmaxCrossEntropy{0.1f},
                   {random(weight({31, 17}), 1), labels, state(), weight({31, 17}), metrics},
                   some_valid});
  TestTensor probabilities = exact(DType::kF32, {31, 17});
  for (int i = 0; i < 31 * 17; ++i) probabilities.values.push_back((i % 17 * 7 + i) % 5 / 32.0);
  cases.push_back({"loss by probabilities",
                   SoftmaxCrossEntropy{0.1f},
                   {random(weight({31, 17}), 1), probabilities, state(), weight({31, 17}), metrics},
                   some_valid});
  cases.push_back(
      {"loss",
       MeanSquaredError{},
       {random(weight({31, 17}), 1), random(full({31, 17}), 2), state(), weight({31, 17}), metrics},
       some_valid});
  cases.push_back({"sum",
                   SumOfSquares{{{5, 70000}, {80000, 99999}}},
                   {random(full({100000}), 1), exact(DType::kF64, {1})}});
  std::vector<std::vector<Bytes>> with_one;
  for (const Case& c : cases) {
    for (const auto& asked : variations(c)) with_one.push_back(target_memory(c, asked).second);
  }
  for (int threads : {2, 3}) {
    Bench other(GetParam().device(threads), GetParam().backend);
    size_t run = 0;
    for (const Case& c : cases) {
      for (const auto& asked : variations(c)) {
        const auto plan = other.backend().plan(c.op, specs_of(c, asked));
        const auto memory = other.run(c.op, *plan, memory_before(other, c, plan->specs()));
        EXPECT_TRUE(memory == with_one[run++]) << c.name << " with " << threads << " threads";
      }
    }
  }
}

TRIREME_ON_ALL_TARGETS(LayoutsTest);

}  // namespace
}  // namespace trireme::ops
