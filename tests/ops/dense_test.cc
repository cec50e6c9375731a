// Fully connected layers against the reference.
#include "ops/dense.h"

#include <array>
#include <cstdlib>
#include <filesystem>
#include <set>

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
          {"few rows, no multiple of anything", 7, 99, 37, Activation::kGelu},
          {"rows", 5, 17, 32, Activation::kTanh},
          {"many rows", 64, 120, 84, Activation::kSigmoid},
          {"rows for a matrix product", 8, 16, 17, Activation::kRelu, false},
          {"rows and columns for an epilogue", 9, 16, 24, Activation::kRelu},
          {"one output", 9, 33, 1, Activation::kSigmoid},
          {"one input", 5, 1, 16, Activation::kNone, false},
          {"wide", 1, 400, 120, Activation::kTanh, false},
          {"rows of 2 KiB", 17, 24, 512, Activation::kSilu}};
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

// Results do not show whether the tensors have been converted; the scratch memory for copies does.
TEST(DenseBf16Test, IsConvertedToF32OnRequest) {
  if (!cpu_computes_in(DType::kBF16)) GTEST_SKIP() << "the CPU does not compute in bf16";
  const auto device = create_cpu_device(1);
  const auto bf16 = [](const Shape& shape) -> TensorSpec {
    return {DType::kBF16, shape, Layout::row_major()};
  };
  const std::array specs{bf16({32, 64}), bf16({16, 64}), absent(), bf16({32, 16}), absent()};
  const auto scratch_bytes = [&](bool in_f32) {
    const auto backend = create_cpu_backend(*device, {.bf16_in_f32 = in_f32});
    return backend->plan(DenseForward{}, specs)->scratch_bytes();
  };
  constexpr size_t kCopies = sizeof(float) * (32 * 64 + 16 * 64 + 32 * 16);
  EXPECT_GE(scratch_bytes(true), scratch_bytes(false) + kCopies);
}

// A second backend finds the algorithms that the first one chose, and so does not measure again:
// measuring writes a new file.
TEST(DenseTuningTest, CudaChoicesAreFoundAgain) {
  if (query_cuda().devices == 0) GTEST_SKIP() << "no GPU";
  std::string folder = testing::TempDir() + "/dense.XXXXXX";
  ASSERT_TRUE(mkdtemp(folder.data()));
  const auto device = create_cuda_device(0);
  const auto plan = [&] {
    const auto backend = create_cuda_backend(*device, {.tuning_cache = folder});
    for (const int64_t rows : {64, 200, 1000}) {
      for (const int64_t columns : {48, 96, 320}) {
        const auto f32 = [](Shape shape) {
          return TensorSpec{DType::kF32, std::move(shape), Layout::row_major()};
        };
        const std::vector<TensorSpec> specs{f32({rows, columns}), f32({10, columns}), f32({10}),
                                            f32({rows, 10}), absent()};
        backend->plan(DenseForward{}, specs);
      }
    }
  };
  const auto files = [&] {
    std::set<std::pair<std::string, std::filesystem::file_time_type>> found;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      found.emplace(entry.path().string(), entry.last_write_time());
    }
    return found;
  };
  plan();
  const auto first = files();
  plan();
  EXPECT_EQ(files(), first);
  std::filesystem::remove_all(folder);
  if (first.empty()) GTEST_SKIP() << "the emulation does not measure products";
}

}  // namespace
}  // namespace trireme::ops
