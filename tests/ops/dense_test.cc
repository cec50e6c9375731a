// Fully connected layers against the reference.
#include "ops/dense.h"

#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  std::string name;
  int64_t rows, in, out;
  Activation activation = Activation::kNone;
  bool bias = true;
};

std::vector<Problem> problems() {
  return {{"one of all", 1, 1, 1},
          {"few rows", 2, 64, 10, Activation::kRelu},
          {"rows", 5, 17, 32, Activation::kTanh},
          {"many rows", 64, 120, 84, Activation::kSigmoid},
          {"rows for a matrix product", 8, 16, 17, Activation::kRelu, false},
          {"rows and columns for an epilogue", 9, 16, 24, Activation::kRelu},
          {"one output", 9, 33, 1, Activation::kSigmoid},
          {"one input", 5, 1, 16, Activation::kNone, false},
          {"wide", 1, 400, 120, Activation::kTanh, false}};
}

class DenseTest : public OpsTest {};

TEST_P(DenseTest, Forward) {
  for (const Problem& p : problems()) {
    check({.name = p.name,
           .op = DenseForward{p.activation},
           .tensors = {random(weight({p.rows, p.in}), 1), random(weight({p.out, p.in}), 2),
                       p.bias ? random(weight({p.out}), 3) : none(), weight({p.rows, p.out}),
                       none()}});
  }
}

// The activations whose derivatives need their input, with and without storing it. cuBLASLt fuses
// only GELU's approximation, and only for multiples of 8 columns.
TEST_P(DenseTest, ForwardStoresWhatTheActivationReads) {
  for (const Problem& p : problems()) {
    for (Activation f : {Activation::kGelu, Activation::kGeluTanh, Activation::kSilu}) {
      for (bool stores : {true, false}) {
        check({.name = p.name,
               .op = DenseForward{f},
               .tensors = {random(weight({p.rows, p.in}), 1), random(weight({p.out, p.in}), 2),
                           p.bias ? random(weight({p.out}), 3) : none(), weight({p.rows, p.out}),
                           stores ? weight({p.rows, p.out}) : none()}});
      }
    }
  }
}

TEST_P(DenseTest, BackwardData) {
  for (const Problem& p : problems()) {
    check({.name = p.name,
           .op = DenseBackwardData{},
           .tensors = {random(weight({p.rows, p.out}), 4), random(weight({p.out, p.in}), 2),
                       weight({p.rows, p.in}), none()}});
  }
}

TEST_P(DenseTest, BackwardDataThroughAnActivation) {
  for (const Problem& p : problems()) {
    for (Activation f : {Activation::kRelu, Activation::kGelu, Activation::kGeluTanh}) {
      check({.name = p.name,
             .op = DenseBackwardData{f},
             .tensors = {random(weight({p.rows, p.out}), 4), random(weight({p.out, p.in}), 2),
                         weight({p.rows, p.in}), random(weight({p.rows, p.in}), 7)}});
    }
  }
}

TEST_P(DenseTest, BackwardWeights) {
  for (const Problem& p : problems()) {
    check({.name = p.name,
           .op = DenseBackwardWeights{},
           .tensors = {random(weight({p.rows, p.in}), 1), random(weight({p.rows, p.out}), 4),
                       full({p.out, p.in}), p.bias ? full({p.out}) : none()}});
  }
}

TEST_P(DenseTest, BackwardWeightsAccumulate) {
  for (const Problem& p : problems()) {
    check(
        {.name = p.name,
         .op = DenseBackwardWeights{.accumulate = true},
         .tensors = {random(weight({p.rows, p.in}), 1), random(weight({p.rows, p.out}), 4),
                     random(full({p.out, p.in}), 5), p.bias ? random(full({p.out}), 6) : none()}});
  }
}

TRIREME_ON_TARGETS(DenseTest, multiplying_targets());

}  // namespace
}  // namespace trireme::ops
