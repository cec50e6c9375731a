// Activations, dropout, addition, concatenation and conversions against the reference.
#include "ops/elementwise.h"

#include <numeric>

#include "ops/activation.h"
#include "ops/dropout.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> all{{1, 1, 1, 1},  {2, 3, 5, 7},  {5, 6, 8, 8},  {2, 16, 5, 5},
                                      {1, 17, 7, 8}, {5, 32, 1, 1}, {2, 64, 7, 5}, {5, 17},
                                      {2, 1000},     {5, 19},       {2, 6, 9},     {1, 3, 2, 4, 5}};
  return all;
}

const std::vector<Activation>& activations() {
  static const std::vector<Activation> all{Activation::kRelu,     Activation::kSigmoid,
                                           Activation::kTanh,     Activation::kGelu,
                                           Activation::kGeluTanh, Activation::kSilu};
  return all;
}

// A range that includes the flat parts of the functions.
TestTensor wide(const Shape& shape) { return uniform(image(shape), 1, -8, 8); }

class ElementwiseTest : public OpsTest {};

TEST_P(ElementwiseTest, ActivationForward) {
  for (const Shape& x : shapes()) {
    for (Activation f : activations()) {
      check({std::string(name_of(f)), ActivationForward{f}, {wide(x), image(x)}});
    }
  }
}

TEST_P(ElementwiseTest, ActivationBackward) {
  for (const Shape& x : shapes()) {
    for (Activation f : activations()) {
      TestTensor saved = wide(x);
      if (derivative_uses_output(f)) {
        const Case forward{"forward", ActivationForward{f}, {wide(x), image(x)}};
        saved.values = reference_values(forward)[ActivationForward::kY];
      }
      check(
          {std::string(name_of(f)), ActivationBackward{f}, {saved, random(image(x), 2), image(x)}});
    }
  }
}

TEST_P(ElementwiseTest, Dropout) {
  StepState state_now;
  state_now.seed = 7;
  state_now.step = 41;
  state_now.first_sample = 1234567890123;  // beyond 32 bits
  for (const Shape& x : shapes()) {
    for (float rate : {0.0f, 0.1f, 0.5f, 0.9f}) {
      check({"dropout",
             DropoutForward{rate, 99},
             {random(image(x), 1), state(), image(x)},
             state_now});
      check({"dropout",
             DropoutBackward{rate, 99},
             {random(image(x), 1), state(), image(x)},
             state_now});
    }
  }
}

TEST_P(ElementwiseTest, DropoutOfABatchWithSkippedSamples) {
  constexpr int64_t kRows = 5;  // at most, of shapes()
  const Buffer memory = target_.backend().device().allocate_host(kRows * sizeof(int64_t));
  auto* places = reinterpret_cast<int64_t*>(memory.data());
  for (int64_t row = 0; row < kRows; ++row) places[row] = 3 + row * row;
  StepState state_now;
  state_now.seed = 7;
  state_now.places = places;
  for (const Shape& x : shapes()) {
    check(
        {"dropout", DropoutForward{0.4f, 99}, {random(image(x), 1), state(), image(x)}, state_now});
  }
}

// More elements than one piece of a mask.
TEST_P(ElementwiseTest, DropoutOfLargeSamples) {
  StepState state_now;
  state_now.first_sample = 3;
  const Shape x{2, 33, 11, 13};
  check({"dropout", DropoutForward{0.3f, 5}, {random(image(x), 1), state(), image(x)}, state_now});
}

TEST_P(ElementwiseTest, Add) {
  for (const Shape& x : shapes()) {
    check({"add", Add{}, {random(image(x), 1), random(image(x), 2), image(x)}});
  }
  for (const Shape& x : {Shape{1}, Shape{33}}) {
    check({"add", Add{}, {random(full(x), 1), random(full(x), 2), full(x)}});
  }
}

TEST_P(ElementwiseTest, ConcatAndSplit) {
  const std::vector<std::vector<int64_t>> widths{{16, 16}, {16, 32, 64}, {8, 24}, {1, 3, 6, 17},
                                                 {17, 16}, {64},         {1, 1}};
  for (const std::vector<int64_t>& parts : widths) {
    for (const Shape& rest : {Shape{2, 0, 5, 7}, Shape{1, 0, 1, 1}, Shape{5, 0}, Shape{2, 0, 3}}) {
      Shape whole = rest;
      whole[1] = std::accumulate(parts.begin(), parts.end(), int64_t{0});
      Case concat{"concat", Concat{static_cast<int>(parts.size())}, {image(whole)}};
      Case split{"split", Split{static_cast<int>(parts.size())}, {random(image(whole), 9)}};
      for (size_t i = 0; i < parts.size(); ++i) {
        Shape part = rest;
        part[1] = parts[i];
        concat.tensors.push_back(random(image(part), i + 1));
        split.tensors.push_back(image(part));
      }
      check(concat);
      check(split);
    }
  }
}

// More parts than fit into one piece of work, with remainders everywhere.
TEST_P(ElementwiseTest, ConcatAndSplitOfManyParts) {
  constexpr int64_t kParts = 37, kEach = 3;
  for (const Shape& rest : {Shape{2, 0, 3, 5}, Shape{700, 0}}) {
    Shape part = rest, whole = rest;
    part[1] = kEach;
    whole[1] = kParts * kEach;
    Case concat{"concat", Concat{kParts}, {image(whole)}};
    Case split{"split", Split{kParts}, {random(image(whole), 9)}};
    for (int64_t i = 0; i < kParts; ++i) {
      concat.tensors.push_back(random(image(part), static_cast<uint64_t>(i)));
      split.tensors.push_back(image(part));
    }
    check(concat);
    check(split);
  }
}

TEST_P(ElementwiseTest, ReorderOfLargeTensors) {
  // Many positions of few channels, many channels at few positions, and many of both.
  for (const Shape& x : {Shape{2, 3, 40, 37}, Shape{2, 1500, 1, 3}, Shape{1, 130, 9, 15}}) {
    check({"reorder", Reorder{}, {random(image(x), 1), image(x)}});
  }
}

TEST_P(ElementwiseTest, ReorderBetweenAllLayouts) {
  for (const Shape& x : shapes()) {
    const Case c{"reorder", Reorder{}, {random(image(x), 1), image(x)}};
    check(c);
    for (const auto& from : variations(c)) {
      for (const auto& to : variations(c)) {
        if (!from[0].is_any()) check(c, {from[0], to[0]});
      }
    }
  }
  const Case scalar{"scalar", Reorder{}, {with(full({}), {2.5}), full({})}};
  check(scalar);
}

TEST_P(ElementwiseTest, ReorderOfEveryDtype) {
  for (const Shape& x : shapes()) {
    // Exact in every dtype.
    TestTensor steps = image(x);
    for (int64_t i = 0; i < x.elements(); ++i) {
      steps.values.push_back(static_cast<double>(i * 37 % 256));
    }
    TestTensor single = with(full(x), steps.values), single_out = full(x);
    single.image = single_out.image = true;
    check({"from f32", Reorder{}, {single, image(x)}});
    check({"to f32", Reorder{}, {steps, single_out}});
    for (DType integer : {DType::kU8, DType::kI32}) {
      TestTensor from = with(exact(integer, x), steps.values), to = exact(integer, x);
      from.image = to.image = true;
      check({"integers", Reorder{}, {from, to}});
    }
  }
}

TEST_P(ElementwiseTest, UnalignedTensors) {
  for (const Shape& x : {Shape{2, 3, 5, 7}, Shape{2, 16, 7, 5}, Shape{5, 40}}) {
    const TestTensor a = random(image(x), 1), b = random(image(x), 2), y = image(x);
    TestTensor bytes = uniform(exact(DType::kU8, x), 1, 0, 256);
    bytes.image = true;
    Shape twice = x;
    twice[1] *= 2;
    const TestTensor both = image(twice);
    for (Case c :
         {Case{"activation", ActivationForward{}, {a, y}},
          Case{"activation", ActivationBackward{}, {a, b, y}},
          Case{"dropout", DropoutForward{}, {a, state(), y}}, Case{"add", Add{}, {a, b, y}},
          Case{"concat", Concat{2}, {both, a, b}}, Case{"split", Split{2}, {random(both, 1), y, y}},
          Case{"reorder", Reorder{}, {a, y}},
          Case{"input", NormalizeInput{0.1f, {0.2f}, {0.3f}}, {bytes, y}}}) {
      c.unaligned = true;
      check(c);
    }
  }
}

TEST_P(ElementwiseTest, NormalizeInput) {
  const std::vector<float> mean{0.485f, 0.456f, 0.406f}, deviation{0.229f, 0.224f, 0.225f};
  for (const Shape& x : {Shape{2, 3, 8, 8}, Shape{1, 3, 5, 7}, Shape{5, 3, 1, 1}}) {
    TestTensor bytes = uniform(exact(DType::kU8, x), 1, 0, 256);
    bytes.image = true;
    TestTensor numbers = random(full(x), 1);
    numbers.image = true;
    for (const TestTensor& from : {bytes, numbers}) {
      check({"a mean each", NormalizeInput{1.0f / 255, mean, deviation}, {from, image(x)}});
      check({"one mean", NormalizeInput{1.0f / 255, {0.5f}, deviation}, {from, image(x)}});
      check({"one for all", NormalizeInput{0.5f, {0.1f}, {0.3f}}, {from, image(x)}});
    }
  }
  for (const Shape& x : {Shape{2, 1, 8, 7}, Shape{5, 17}, Shape{2, 16, 5, 5}, Shape{1, 6, 7}}) {
    TestTensor bytes = uniform(exact(DType::kU8, x), 1, 0, 256);
    bytes.image = true;
    check({"one for all", NormalizeInput{1.0f / 255, {0.1307f}, {0.3081f}}, {bytes, image(x)}});
  }
}

TRIREME_ON_ALL_TARGETS(ElementwiseTest);

}  // namespace
}  // namespace trireme::ops
