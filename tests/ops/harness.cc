#include "tests/ops/harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/random.h"
#include "tests/ops/reference/reference_backend.h"

namespace trireme::ops {
namespace {

std::string describe(std::span<const TensorSpec> specs) {
  std::string text;
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!is_absent(specs[i])) text += "\n  " + std::to_string(i) + ": " + specs[i].to_string();
  }
  return text;
}

TestTensor make_tensor(TestTensor::Kind kind, const Shape& shape) {
  TestTensor tensor;
  tensor.kind = kind;
  tensor.shape = shape;
  return tensor;
}

}  // namespace

TestTensor none() { return {}; }
TestTensor image(const Shape& shape) {
  TestTensor tensor = make_tensor(TestTensor::Kind::kCompute, shape);
  tensor.image = true;
  return tensor;
}
TestTensor weight(const Shape& shape) { return make_tensor(TestTensor::Kind::kCompute, shape); }
TestTensor full(const Shape& shape) { return make_tensor(TestTensor::Kind::kFull, shape); }
TestTensor low(const Shape& shape) { return make_tensor(TestTensor::Kind::kLow, shape); }
TestTensor exact(DType dtype, const Shape& shape) {
  TestTensor tensor = make_tensor(TestTensor::Kind::kExact, shape);
  tensor.dtype = dtype;
  return tensor;
}
TestTensor state() {
  return make_tensor(TestTensor::Kind::kState, {static_cast<int64_t>(sizeof(StepState))});
}
TestTensor bytes_of(const void* data, size_t size) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  return with(exact(DType::kU8, {static_cast<int64_t>(size)}), {bytes, bytes + size});
}
TestTensor workspace(Bytes of_target, Bytes of_reference) {
  TestTensor tensor =
      make_tensor(TestTensor::Kind::kWorkspace, {static_cast<int64_t>(of_target.size())});
  tensor.target_workspace = std::move(of_target);
  tensor.reference_workspace = std::move(of_reference);
  return tensor;
}
TestTensor with(TestTensor tensor, std::vector<double> values) {
  tensor.values = std::move(values);
  return tensor;
}
TestTensor random(TestTensor tensor, uint64_t seed) {
  const Random source(seed, RandomPurpose::kSynthetic);
  tensor.values.resize(static_cast<size_t>(tensor.shape.elements()));
  for (size_t i = 0; i < tensor.values.size(); ++i) tensor.values[i] = source.normal_at(i);
  return tensor;
}
TestTensor uniform(TestTensor tensor, uint64_t seed, double low, double high) {
  const Random source(seed, RandomPurpose::kSynthetic);
  tensor.values.resize(static_cast<size_t>(tensor.shape.elements()));
  for (size_t i = 0; i < tensor.values.size(); ++i) {
    tensor.values[i] = low + (high - low) * static_cast<double>(source.uniform_at(i));
  }
  return tensor;
}

OpsTest::OpsTest()
    : target_(GetParam().device(1), GetParam().backend),
      reference_(create_cpu_device(1), create_reference_backend) {}

DType OpsTest::dtype_of(const TestTensor& tensor) const {
  using Kind = TestTensor::Kind;
  switch (tensor.kind) {
    case Kind::kCompute:
    case Kind::kLow:
      return GetParam().dtype;
    case Kind::kFull:
    case Kind::kExact:
      return tensor.dtype;
    case Kind::kAbsent:
    case Kind::kState:
    case Kind::kWorkspace:
      break;
  }
  return DType::kU8;
}

std::vector<TensorSpec> OpsTest::specs_of(const Case& c, const std::vector<Layout>& layouts) const {
  using Kind = TestTensor::Kind;
  std::vector<TensorSpec> specs;
  for (size_t i = 0; i < c.tensors.size(); ++i) {
    const TestTensor& tensor = c.tensors[i];
    TensorSpec spec{dtype_of(tensor), tensor.shape, layouts[i]};
    if (tensor.kind == Kind::kAbsent) spec = absent();
    if (tensor.kind == Kind::kState) spec.layout = Layout::row_major();
    if (tensor.kind == Kind::kWorkspace) {
      if (tensor.target_workspace.empty()) spec = unsized_workspace();
      spec.layout = tensor.target_workspace.empty() ? Layout::any() : Layout::row_major();
    }
    specs.push_back(spec);
  }
  return specs;
}

std::vector<std::vector<Layout>> OpsTest::variations(const Case& c) const {
  const Layout row = Layout::row_major(), last = Layout::channels_last(), any = Layout::any();
  std::vector<std::vector<Layout>> all;
  const auto is_4d = [](const TestTensor& t) { return t.image && t.shape.rank() == 4; };
  // Layouts of the first image, the other images and everything else. Images that are not [N, C, H,
  // W] support row-major only.
  const auto add = [&](auto first, auto others, const Layout& rest) {
    std::vector<Layout> layouts;
    bool seen = false;
    for (const TestTensor& tensor : c.tensors) {
      const bool floating =
          tensor.kind == TestTensor::Kind::kCompute || tensor.kind == TestTensor::Kind::kFull;
      if (!is_4d(tensor)) {
        layouts.push_back(floating ? rest : row);
        continue;
      }
      const TensorSpec spec{dtype_of(tensor), tensor.shape, row};
      layouts.push_back(seen ? others(spec) : first(spec));
      seen = true;
    }
    all.push_back(std::move(layouts));
  };
  const auto fixed = [](const Layout& layout) {
    return [layout](const TensorSpec&) { return layout; };
  };
  add(fixed(row), fixed(row), row);
  add(fixed(any), fixed(any), any);
  if (std::none_of(c.tensors.begin(), c.tensors.end(), is_4d)) return all;
  add(fixed(last), fixed(last), row);
  add(fixed(row), fixed(any), any);
  add(fixed(last), fixed(any), any);
  add(fixed(row), fixed(last), row);
  const size_t blocks = GetParam().blocked({GetParam().dtype, {1, 16, 1, 1}, row}).size();
  for (size_t b = 0; b < blocks; ++b) {
    const auto blocked = [b](const TensorSpec& spec) { return GetParam().blocked(spec)[b]; };
    add(blocked, blocked, row);
    add(blocked, fixed(any), any);
    add(fixed(last), blocked, row);
  }
  return all;
}

std::vector<double> OpsTest::rounded(const TestTensor& tensor) {
  const bool compute = tensor.kind == TestTensor::Kind::kCompute;
  if (tensor.values.empty() || (!compute && tensor.kind != TestTensor::Kind::kFull)) {
    return tensor.values;
  }
  const TensorSpec spec{dtype_of(tensor), tensor.shape, Layout::row_major()};
  return target_.unpack(spec, target_.pack(spec, tensor.values));
}

std::vector<Bytes> OpsTest::reference_memory(const Case& c) {
  using Kind = TestTensor::Kind;
  std::vector<TensorSpec> specs =
      specs_of(c, std::vector<Layout>(c.tensors.size(), Layout::row_major()));
  std::vector<Bytes> memory(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const Kind kind = c.tensors[i].kind;
    if (kind == Kind::kCompute || kind == Kind::kFull) specs[i].dtype = DType::kF64;
    if (kind == Kind::kLow) specs[i].dtype = DType::kF32;
    if (kind == Kind::kWorkspace && !c.tensors[i].reference_workspace.empty()) {
      specs[i].shape = {static_cast<int64_t>(c.tensors[i].reference_workspace.size())};
    }
  }
  const auto plan = reference_.backend().plan(c.op, specs);
  for (size_t i = 0; i < specs.size(); ++i) {
    const TestTensor& tensor = c.tensors[i];
    memory[i].assign(plan->specs()[i].bytes(), kPoison);
    if (tensor.kind == Kind::kState) std::memcpy(memory[i].data(), &c.state, sizeof(c.state));
    if (!tensor.reference_workspace.empty()) memory[i] = tensor.reference_workspace;
    if (!tensor.values.empty()) memory[i] = reference_.pack(specs[i], rounded(tensor));
  }
  return reference_.run(c.op, *plan, memory);
}

OpsTest::Values OpsTest::reference_values(const Case& c) {
  using Kind = TestTensor::Kind;
  const std::vector<Bytes> memory = reference_memory(c);
  Values values(memory.size());
  for (size_t i = 0; i < memory.size(); ++i) {
    const TestTensor& tensor = c.tensors[i];
    if (memory[i].empty() || tensor.kind == Kind::kState || tensor.kind == Kind::kWorkspace) {
      continue;
    }
    DType dtype = DType::kF64;
    if (tensor.kind == Kind::kExact) dtype = tensor.dtype;
    if (tensor.kind == Kind::kLow) dtype = DType::kF32;
    values[i] = reference_.unpack({dtype, tensor.shape, Layout::row_major()}, memory[i]);
  }
  return values;
}

std::vector<Bytes> OpsTest::memory_before(Bench& bench, const Case& c,
                                          std::span<const TensorSpec> specs) {
  std::vector<Bytes> memory(specs.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    const TestTensor& tensor = c.tensors[i];
    memory[i].assign(specs[i].bytes(), kPoison);
    if (tensor.kind == TestTensor::Kind::kState) {
      std::memcpy(memory[i].data(), &c.state, sizeof(c.state));
    }
    if (!tensor.target_workspace.empty()) memory[i] = tensor.target_workspace;
    if (!tensor.values.empty()) memory[i] = bench.pack(specs[i], tensor.values);
  }
  return memory;
}

std::pair<std::vector<TensorSpec>, std::vector<Bytes>> OpsTest::target_memory(
    const Case& c, const std::vector<Layout>& layouts) {
  const auto plan = target_.backend().plan(c.op, specs_of(c, layouts));
  const std::vector<TensorSpec> specs(plan->specs().begin(), plan->specs().end());
  return {specs, target_.run(c.op, *plan, memory_before(target_, c, specs))};
}

void OpsTest::check(const Case& c) {
  const Values expected = reference_values(c);
  std::vector<std::vector<TensorSpec>> chosen;
  for (const std::vector<Layout>& layouts : variations(c)) check(c, layouts, expected, chosen);
}

void OpsTest::check(const Case& c, const std::vector<Layout>& layouts) {
  std::vector<std::vector<TensorSpec>> chosen;
  check(c, layouts, reference_values(c), chosen);
}

void OpsTest::check(const Case& c, const std::vector<Layout>& layouts, const Values& expected,
                    std::vector<std::vector<TensorSpec>>& chosen) {
  SCOPED_TRACE(c.name + " (" + std::string(name_of(c.op)) + ")");
  const std::vector<TensorSpec> asked = specs_of(c, layouts);
  SCOPED_TRACE("asked:" + describe(asked));
  const auto plan = target_.backend().plan(c.op, asked);
  const std::span<const TensorSpec> specs = plan->specs();
  SCOPED_TRACE("chosen:" + describe(specs));
  ASSERT_EQ(specs.size(), asked.size());
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_FALSE(specs[i].layout.is_any()) << "layout not chosen: argument " << i;
    // A plan may require f32 if it has no fast implementation in lower precision.
    const bool raised_to_f32 =
        specs[i].dtype == DType::kF32 && c.tensors[i].kind == TestTensor::Kind::kCompute;
    ASSERT_TRUE(specs[i].dtype == asked[i].dtype || raised_to_f32) << "argument " << i;
    ASSERT_EQ(is_absent(specs[i]), is_absent(asked[i]));
    if (c.tensors[i].kind != TestTensor::Kind::kWorkspace) {
      ASSERT_EQ(specs[i].shape, asked[i].shape);
    }
  }
  if (std::any_of(chosen.begin(), chosen.end(),
                  [&](const auto& other) { return std::ranges::equal(other, specs); })) {
    return;
  }
  chosen.emplace_back(specs.begin(), specs.end());
  const std::vector<Bytes> before = memory_before(target_, c, specs);
  const std::vector<Bytes> after = target_.run(c.op, *plan, before);
  compare(c, specs, after, expected);
  EXPECT_TRUE(target_.run(c.op, *plan, before) == after) << "different result in the second run";
  if (c.unaligned) {
    SCOPED_TRACE("unaligned");
    std::vector<size_t> shifts;
    for (size_t i = 0; i < specs.size(); ++i) {
      const bool is_state = c.tensors[i].kind == TestTensor::Kind::kState;
      shifts.push_back(is_state ? 0 : size_of(specs[i].dtype));
    }
    compare(c, specs, target_.run(c.op, *plan, before, {}, shifts), expected);
  }
  for (const Alias& alias : aliases(c.op)) {
    const auto output = static_cast<size_t>(alias.first), input = static_cast<size_t>(alias.second);
    if (is_absent(specs[output]) || specs[output] != specs[input]) continue;
    SCOPED_TRACE("argument " + std::to_string(output) + " is " + std::to_string(input));
    compare(c, specs, target_.run(c.op, *plan, before, alias), expected);
  }
}

void OpsTest::compare(const Case& c, std::span<const TensorSpec> specs,
                      const std::vector<Bytes>& memory, const Values& expected) {
  for (size_t i = 0; i < specs.size(); ++i) {
    if (!is_output(c.op, static_cast<int>(i)) || expected[i].empty()) continue;
    const std::vector<double> result = target_.unpack(specs[i], memory[i]);
    ASSERT_EQ(result.size(), expected[i].size());
    // Elements that the reference does not change must be bitwise unchanged.
    const std::vector<double> start = rounded(c.tensors[i]);
    const bool check_unchanged = !start.empty() && c.tensors[i].kind != TestTensor::Kind::kExact;
    double error = 0, norm = 0, worst = -1;
    size_t worst_at = 0;
    for (size_t k = 0; k < result.size(); ++k) {
      if (check_unchanged && expected[i][k] == start[k]) {
        EXPECT_EQ(result[k], start[k]) << "argument " << i << " changed at element " << k;
      }
      if (!std::isfinite(expected[i][k])) {
        const bool both_nan = std::isnan(expected[i][k]) && std::isnan(result[k]);
        EXPECT_TRUE(result[k] == expected[i][k] || both_nan)
            << "argument " << i << ", element " << k;
        continue;
      }
      const double difference = std::abs(result[k] - expected[i][k]);
      if (!(difference <= worst)) worst = difference, worst_at = k;
      error += difference * difference;
      norm += expected[i][k] * expected[i][k];
    }
    // A lower bound of the norm, for results that cancel out.
    const double min_norm = 0.01 * std::sqrt(static_cast<double>(result.size()));
    EXPECT_LE(std::sqrt(error),
              GetParam().tolerance * c.slack * std::max(std::sqrt(norm), min_norm))
        << "argument " << i << ": relative error " << std::sqrt(error / norm)
        << ", worst at element " << worst_at << ": " << result[worst_at] << " instead of "
        << expected[i][worst_at];
    // Readers of a blocked layout may rely on zeros in its padding.
    if (specs[i].layout.opaque()) {
      EXPECT_TRUE(target_.pack(specs[i], result) == memory[i]) << "padding of argument " << i;
    }
  }
}

}  // namespace trireme::ops
