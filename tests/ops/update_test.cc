// Updates of the parameters against the reference. Arrays have gaps between ranges; the harness
// requires that they are bitwise unchanged.
#include <cmath>
#include <limits>

#include "core/random.h"
#include "ops/optimizer.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Arrays {
  std::string name;
  int64_t elements;
  std::vector<UpdateRange> ranges;
};

std::vector<Arrays> arrays() {
  return {
      {"one element", 1, {{0, 1, 0.1f, 1}}},
      {"no range", 16, {}},
      {"all", 100, {{0, 100, 0, 1}}},
      {"gaps",
       200,
       {{3, 17, 0.1f, 1}, {17, 50, 0, 0.5f}, {64, 65, 0.2f, 2}, {90, 90}, {101, 190, 0.01f, 1}}},
      {"large", 70000, {{16, 33000, 1e-2f, 1}, {33008, 69999, 0, 0.1f}}},
      // A GPU processes the array in pieces of 8192 elements, one per block, and reads four
      // elements at a time.
      {"pieces",
       25000,
       {{1, 2, 0.1f, 1}, {8190, 8195, 0.2f, 1}, {8195, 16384, 0, 1}, {16384, 24577, 0.1f, 2}}}};
}

// These have fewer cases, to save time.
bool is_large(const Arrays& a) { return a.elements > 1000; }

StepState state_at(int64_t step) {
  StepState state;
  state.labels = 24;
  state.step = step;
  state.learning_rate = 0.05f;
  return state;
}

// The scaling of gradients: the norm to which they are clipped, the loss scale (0 for none), and
// the sum of squares.
struct Scaling {
  float max_norm;
  float loss_scale;
  double squares;
};
const std::vector<Scaling>& scalings() {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
  static const std::vector<Scaling> all{
      {0, 0, 0},  {0.5f, 0, 9},      {2, 0, 1},       {1, 0, 0},    {0, 8, 1},      {0.5f, 8, 1024},
      {2, 8, 64}, {0, 8, kInfinity}, {0.5f, 8, kNaN}, {0, 8, 1e43}, {0.5f, 8, 1e43}};
  return all;
}

TestTensor squares(const Scaling& s) {
  return s.max_norm > 0 || s.loss_scale > 0 ? with(exact(DType::kF64, {1}), {s.squares}) : none();
}
TestTensor loss_scale(const Scaling& s, int64_t skipped) {
  return s.loss_scale > 0 ? bytes_of(LossScale{.scale = s.loss_scale, .skipped = skipped}) : none();
}

// `weight` is the divisor of the mean loss.
TestTensor metrics(double weight) {
  std::vector<double> values(kMetricCount, 0.0);
  values[kMetricWeight] = weight;
  return with(full({kMetricCount}), values);
}

TestTensor low_precision(int64_t elements) {
  return with(low({elements}), std::vector<double>(static_cast<size_t>(elements), 0.375));
}

class UpdateTest : public OpsTest {};

TEST_P(UpdateTest, SumOfSquares) {
  for (const Arrays& a : arrays()) {
    check(
        {a.name, SumOfSquares{a.ranges}, {random(full({a.elements}), 1), exact(DType::kF64, {1})}});
  }
}

// A GPU adds up the sums of all ranges in one block, which has fewer threads than these ranges.
TEST_P(UpdateTest, SumOfSquaresOfManyRanges) {
  constexpr int64_t kRanges = 1500;
  std::vector<UpdateRange> ranges;
  for (int64_t i = 0; i < kRanges; ++i) ranges.push_back({2 * i, 2 * i + 1});
  check({"many ranges",
         SumOfSquares{ranges},
         {random(full({2 * kRanges}), 1), exact(DType::kF64, {1})}});
}

TEST_P(UpdateTest, SumOfSquaresDetectsNonFiniteValues) {
  using O = SumOfSquares;
  for (double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
    for (size_t at : {2, 4, 5}) {
      Case c{"not finite",
             O{{{0, 4, 0, 1}, {6, 9, 0, 1}}, {{4, 5, 0, 1}}},
             {random(full({9}), 1), exact(DType::kF64, {1})}};
      c.tensors[O::kX].values[at] = bad;
      const auto [specs, memory] = target_memory(c, std::vector(2, Layout::row_major()));
      const double sum = target_.unpack(specs[O::kSum], memory[O::kSum])[0];
      EXPECT_EQ(std::isfinite(sum), at == 5) << bad;
    }
  }
}

template <size_t... I>
std::vector<UpdateRule> defaults(std::index_sequence<I...>) {
  return {std::variant_alternative_t<I, UpdateRule>{}...};
}

// All rules with their defaults, and with both values of settings that change the formula.
std::vector<UpdateRule> rules() {
  auto all = defaults(std::make_index_sequence<std::variant_size_v<UpdateRule>>());
  for (UpdateRule rule :
       {UpdateRule(SgdMomentum{.nesterov = true}), UpdateRule(Adam{.beta1 = 0.8f}),
        UpdateRule(Adam{.beta1 = 0.8f, .decoupled = true}),
        UpdateRule(Lars{.sgd = {.nesterov = true}}),
        UpdateRule(Lars{.trust_coefficient = 30, .trust_clip = true}),
        UpdateRule(Lamb{.beta1 = 0.8f, .trust_clip = true})}) {
    all.push_back(std::move(rule));
  }
  return all;
}

// The first slot may have either sign, the second is a mean of squares.
void add_slots(Case& c, const UpdateRule& rule, int64_t elements) {
  const size_t count = slots_of(rule).size();
  if (count > 0) c.tensors.push_back(random(full({elements}), 3));
  if (count > 1) c.tensors.push_back(uniform(full({elements}), 4, 0, 2));
}

int64_t tensors(const Arrays& a) { return static_cast<int64_t>(a.ranges.size()); }

TEST_P(UpdateTest, EveryRule) {
  for (const Arrays& a : arrays()) {
    for (const Scaling& s : scalings()) {
      for (const UpdateRule& rule : rules()) {
        if (is_layer_wise(rule) && a.ranges.empty()) continue;
        if (is_large(a) && s.squares != 1024) continue;
        for (int64_t step : {0, 1, 1000, 1000000}) {
          if (is_large(a) && (step == 0 || step == 1000000)) continue;
          const bool copied = step == 1 || step == 1000000, averaged = step >= 1000;
          Case c{
              .name = a.name,
              .op = Update{rule, a.ranges, s.max_norm, {.decay = 0.75, .warmup = copied}},
              .tensors = {random(full({a.elements}), 1), random(full({a.elements}), 2), squares(s),
                          loss_scale(s, step / 2), step == 1000 ? metrics(18) : none(), state(),
                          copied ? low_precision(a.elements) : none(),
                          is_layer_wise(rule) ? uniform(full({tensors(a)}), 5, 0.5, 2) : none(),
                          averaged ? random(full({a.elements}), 6) : none()},
              .state = state_at(step)};
          add_slots(c, rule, a.elements);
          check(c);
        }
      }
    }
  }
}

// Slots and gradients of the elements from 16 on, as of a rank of ZeRO.
TEST_P(UpdateTest, SlotsOfAPart) {
  for (const UpdateRule& rule : rules()) {
    const std::vector<UpdateRange> ranges{
        {.begin = 16, .end = 33, .slot_shift = -16, .gradient_shift = -12},
        {.begin = 64, .end = 100, .slot_shift = -44, .gradient_shift = -40}};
    const TestTensor ratios = uniform(full({2}), 5, 0.5, 2);
    Case update{.name = "part",
                .op = Update{rule, ranges},
                .tensors = {random(full({100}), 1), random(full({60}), 2), none(), none(), none(),
                            state(), none(), is_layer_wise(rule) ? ratios : none(), none()},
                .state = state_at(3)};
    add_slots(update, rule, 56);
    check(update);
    if (!is_layer_wise(rule)) continue;
    Case squares{.name = "part",
                 .op = TensorSquares{rule, ranges},
                 .tensors = {random(full({100}), 1), random(full({60}), 2), none(), none(), none(),
                             state(), exact(DType::kF64, {2, 2})},
                 .state = state_at(3)};
    add_slots(squares, rule, 56);
    check(squares);
  }
}

TEST_P(UpdateTest, TrustRatios) {
  const std::vector<UpdateRange> ranges{{0, 8, 0.1f}, {8, 16, 0.1f}, {16, 24, 0, 2}};
  for (const UpdateRule& rule : rules()) {
    if (!is_layer_wise(rule)) continue;
    check(
        {.name = "ratios",
         .op = TrustRatios{rule, ranges},
         .tensors = {with(exact(DType::kF64, {3, 2}), {9, 4, 0, 1, 0.25, 100}), state(), full({3})},
         .state = state_at(7)});
  }
}

TEST_P(UpdateTest, TensorSquares) {
  for (Arrays a : arrays()) {
    if (a.ranges.empty()) continue;
    if (a.ranges.size() > 2) a.ranges[1].use_trust_ratio = false;
    for (const Scaling& s : scalings()) {
      for (const UpdateRule& rule : rules()) {
        if (!is_layer_wise(rule) || (is_large(a) && s.squares != 1024)) continue;
        Case c{.name = a.name,
               .op = TensorSquares{rule, a.ranges, s.max_norm},
               .tensors = {random(full({a.elements}), 1), random(full({a.elements}), 2), squares(s),
                           loss_scale(s, 2), metrics(30), state(),
                           exact(DType::kF64, {tensors(a), 2})},
               .state = state_at(7)};
        add_slots(c, rule, a.elements);
        check(c);
      }
    }
  }
}

// The first step from zero moments, whose result depends on the bias correction.
TEST_P(UpdateTest, AdamFromZero) {
  const std::vector<double> zeros(100, 0.0);
  check(
      {.name = "from zero",
       .op = Update{Adam{}, {{0, 100, 0.1f, 1}}},
       .tensors = {random(full({100}), 1), random(full({100}), 2), none(), none(), none(), state(),
                   none(), none(), none(), with(full({100}), zeros), with(full({100}), zeros)},
       .state = state_at(0)});
}

TEST_P(UpdateTest, ScaleLoss) {
  const LossScale scale{.scale = 1024, .good_steps = 3, .skipped = 5};
  const StepState state{.step = 9, .seed = 1, .valid_rows = 4, .loss_gradient_scale = 0.3f};
  check({.name = "scale",
         .op = ScaleLoss{},
         .tensors = {bytes_of(scale), bytes_of(state)},
         .slack = 0});
}

TEST_P(UpdateTest, AdjustLossScale) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (double squares : {0.0, 1e300, -4.0, kInfinity, -kInfinity, std::nan("")}) {
    for (const LossScale& scale :
         {LossScale{.scale = 8, .good_steps = 3}, LossScale{.scale = 8, .good_steps = 4},
          LossScale{.scale = 1 << 24, .good_steps = 4}, LossScale{.scale = 1, .skipped = 7}}) {
      check({.name = std::to_string(squares),
             .op = AdjustLossScale{.growth_steps = 5},
             .tensors = {with(exact(DType::kF64, {1}), {squares}), bytes_of(scale),
                         random(full({700}), 1), random(full({700}), 2)},
             .slack = 0});
    }
  }
}

TRIREME_ON_ALL_TARGETS(UpdateTest);

// For any number of threads and any position of the tensor in the array.
TEST(TensorSquares, AreBitwiseReproducible) {
  constexpr size_t kElements = 50000;
  std::vector<std::array<double, 2>> sums;
  for (int threads : {1, 3}) {
    for (size_t begin : {size_t{0}, size_t{17}}) {
      const auto device = create_cpu_device(threads);
      const auto backend = create_cpu_backend(*device);
      const auto stream = device->create_stream(StreamKind::kCompute);
      std::vector<float> p(kElements + begin), g(p), v(p);
      const Random random(1, RandomPurpose::kSynthetic);
      for (size_t i = 0; i < kElements; ++i) {
        p[begin + i] = random.normal_at(2 * i);
        g[begin + i] = random.normal_at(2 * i + 1);
      }
      const auto first = static_cast<int64_t>(begin), end = static_cast<int64_t>(p.size());
      StepState state = state_at(1);
      std::array<double, 2> sum{};
      const TensorSpec array{DType::kF32, {end}, Layout::row_major()};
      const TensorSpec states{DType::kU8, {int64_t{sizeof state}}, Layout::row_major()};
      const TensorSpec pair{DType::kF64, {1, 2}, Layout::row_major()};
      const auto plan = backend->plan(
          TensorSquares{Lars{}, {{first, end, 0.1f}}},
          std::vector{array, array, absent(), absent(), absent(), states, pair, array});
      std::vector<std::byte> scratch(plan->scratch_bytes());
      const std::vector<void*> args{p.data(), g.data(), nullptr,    nullptr,
                                    nullptr,  &state,   sum.data(), v.data()};
      plan->encode(*stream, args, scratch.data());
      stream->synchronize();
      sums.push_back(sum);
    }
  }
  EXPECT_EQ(sums, std::vector(4, sums[0]));
}

}  // namespace
}  // namespace trireme::ops
