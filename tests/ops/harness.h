// Compares a backend with the double-precision reference: one op at a time, on the same numbers, in
// every combination of layouts that its plan may be asked for.
#pragma once

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "ops/step_state.h"
#include "tests/ops/bench.h"
#include "tests/ops/targets.h"

namespace trireme::ops {

// An argument of an operation under test.
struct TestTensor {
  enum class Kind {
    kAbsent,
    kCompute,    // in the compute dtype of the target; f64 in the reference
    kFull,       // f32 for all targets; f64 in the reference
    kLow,        // in the target's dtype; f32 in the reference
    kExact,      // in `dtype` on both sides
    kState,      // the case's StepState
    kWorkspace,  // workspace that a forward op has written, on either side
  };
  Kind kind = Kind::kAbsent;
  Shape shape;
  // Values in row-major order before the op runs; empty for pure outputs.
  std::vector<double> values;
  bool image = false;  // [N, C, ...]: may be channels-last or blocked
  DType dtype = DType::kF32;
  Bytes target_workspace = {}, reference_workspace = {};
};

TestTensor none();
TestTensor image(const Shape& shape);
TestTensor weight(const Shape& shape);
TestTensor full(const Shape& shape);
TestTensor low(const Shape& shape);
TestTensor exact(DType dtype, const Shape& shape);
TestTensor state();
TestTensor bytes_of(const void* data, size_t size);
template <class T>
TestTensor bytes_of(const T& value) {
  return bytes_of(&value, sizeof(value));
}
TestTensor workspace(Bytes of_target, Bytes of_reference);
TestTensor with(TestTensor tensor, std::vector<double> values);
// Fills the tensor with standard normal numbers; `seed` distinguishes the tensors of a case.
TestTensor random(TestTensor tensor, uint64_t seed);
TestTensor uniform(TestTensor tensor, uint64_t seed, double low, double high);

struct Case {
  std::string name;
  Op op;
  std::vector<TestTensor> tensors;  // in the order of the op's Arg
  StepState state = {};
  double slack = 1;  // factor of the target's tolerance
  // Also run with tensors that are aligned to their element size only.
  bool unaligned = false;
};

class OpsTest : public testing::TestWithParam<Target> {
 protected:
  OpsTest();

  // Checks every variation of layouts and every allowed alias.
  void check(const Case& c);
  // Checks the case with these requested layouts, one per argument.
  void check(const Case& c, const std::vector<Layout>& layouts);

  // The specs requested from the target, and the memory before the op runs.
  std::vector<TensorSpec> specs_of(const Case& c, const std::vector<Layout>& layouts) const;
  std::vector<Bytes> memory_before(Bench& bench, const Case& c, std::span<const TensorSpec> specs);
  std::vector<std::vector<Layout>> variations(const Case& c) const;
  // Results of the reference, one vector per argument, for inputs that are rounded to the dtypes of
  // the target.
  using Values = std::vector<std::vector<double>>;
  Values reference_values(const Case& c);
  std::vector<Bytes> reference_memory(const Case& c);
  // Returns the specs that the plan chose and the memory after it ran.
  std::pair<std::vector<TensorSpec>, std::vector<Bytes>> target_memory(
      const Case& c, const std::vector<Layout>& layouts);

  Bench target_;
  Bench reference_;

  // Compares the outputs in the target's memory with results of the reference.
  void compare(const Case& c, std::span<const TensorSpec> specs, const std::vector<Bytes>& memory,
               const Values& expected);

 private:
  // Runs the plan unless `chosen` has its specs, to which they are added.
  void check(const Case& c, const std::vector<Layout>& layouts, const Values& expected,
             std::vector<std::vector<TensorSpec>>& chosen);
  std::vector<double> rounded(const TestTensor& tensor);
  DType dtype_of(const TestTensor& tensor) const;
};

inline std::string target_name(const testing::TestParamInfo<Target>& info) {
  return info.param.name;
}

}  // namespace trireme::ops

// Put one of these at the end of every file that uses TEST_P(OpsTest, ...) or a derived fixture.
#define TRIREME_ON_TARGETS(Fixture, targets) \
  INSTANTIATE_TEST_SUITE_P(Targets, Fixture, testing::ValuesIn(targets), trireme::ops::target_name)
#define TRIREME_ON_ALL_TARGETS(Fixture) TRIREME_ON_TARGETS(Fixture, trireme::ops::targets())
