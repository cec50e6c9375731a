// Convolutions against the reference.
#include "ops/conv2d.h"

#include "ops/window.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  std::string name;
  Shape x;
  int64_t channels;  // of y
  std::array<int64_t, 2> kernel;
  Conv2dGeometry geometry = {};
  Activation activation = Activation::kNone;
  bool bias = true;

  Shape weight() const { return {channels, x[1] / geometry.groups, kernel[0], kernel[1]}; }
  Shape y() const {
    const Conv2dGeometry& g = geometry;
    return {x[0], channels, windows(x[2], kernel[0], g.stride[0], g.padding[0], g.dilation[0]),
            windows(x[3], kernel[1], g.stride[1], g.padding[1], g.dilation[1])};
  }
};

std::vector<Problem> problems() {
  const Conv2dGeometry same{.padding = {1, 1}};
  const Conv2dGeometry halved{.stride = {2, 2}, .padding = {1, 1}};
  const auto groups = [](int64_t count) {
    return Conv2dGeometry{.padding = {1, 1}, .groups = count};
  };
  return {
      {"LeNet's first", {2, 1, 8, 8}, 6, {5, 5}, {.padding = {2, 2}}, Activation::kTanh},
      {"LeNet's second", {2, 6, 8, 8}, 16, {5, 5}, {}, Activation::kSigmoid},
      {"image", {5, 3, 8, 8}, 16, {3, 3}, same, Activation::kRelu},
      {"stem",
       {1, 3, 17, 15},
       64,
       {7, 7},
       {.stride = {2, 2}, .padding = {3, 3}},
       Activation::kNone,
       false},
      {"plain", {2, 16, 8, 8}, 16, {3, 3}, same, Activation::kNone, false},
      {"Winograd", {5, 32, 16, 16}, 32, {3, 3}, same, Activation::kRelu},
      {"halved", {2, 16, 8, 7}, 32, {3, 3}, halved},
      {"bottleneck", {2, 32, 7, 7}, 17, {1, 1}, {}, Activation::kRelu, false},
      {"shortcut", {1, 16, 7, 5}, 32, {1, 1}, {.stride = {2, 2}}, Activation::kNone, false},
      {"odd channels", {1, 17, 5, 5}, 17, {3, 3}, same, Activation::kRelu},
      {"narrow", {5, 6, 7, 8}, 3, {3, 3}, same, Activation::kTanh},
      {"one pixel", {2, 16, 1, 1}, 16, {3, 3}, same},
      {"one of all", {1, 1, 1, 1}, 1, {1, 1}},
      {"flat", {2, 3, 5, 1}, 6, {3, 1}, {.padding = {1, 0}}, Activation::kRelu},
      {"uneven",
       {2, 6, 8, 5},
       16,
       {3, 2},
       {.stride = {1, 2}, .padding = {2, 0}, .dilation = {2, 1}}},
      {"dilated", {1, 16, 8, 8}, 16, {3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}},
      {"grouped", {2, 32, 5, 5}, 64, {3, 3}, groups(2), Activation::kRelu},
      {"oddly grouped", {2, 6, 5, 5}, 9, {3, 3}, groups(3)},
      {"uneven groups",
       {2, 16, 8, 5},
       32,
       {3, 2},
       {.stride = {2, 1}, .padding = {1, 0}, .dilation = {1, 2}, .groups = 2},
       Activation::kSigmoid},
      {"depthwise", {2, 32, 7, 7}, 32, {3, 3}, groups(32), Activation::kRelu, false},
      {"odd depthwise", {1, 17, 5, 5}, 34, {3, 3}, groups(17)},
  };
}

Case forward(const Problem& p) {
  return {.name = p.name,
          .op = Conv2dForward{p.geometry, p.activation},
          .tensors = {random(image(p.x), 1), random(weight(p.weight()), 2),
                      p.bias ? random(weight({p.channels}), 3) : none(), image(p.y())}};
}

Case backward_data(const Problem& p) {
  return {.name = p.name,
          .op = Conv2dBackwardData{p.geometry},
          .tensors = {random(image(p.y()), 4), random(weight(p.weight()), 2), image(p.x)}};
}

Case backward_weights(const Problem& p) {
  return {.name = p.name,
          .op = Conv2dBackwardWeights{p.geometry},
          .tensors = {random(image(p.x), 1), random(image(p.y()), 4), full(p.weight()),
                      p.bias ? full({p.channels}) : none()}};
}

std::vector<Layout> chosen_by(const OpPlan& plan) {
  std::vector<Layout> layouts;
  for (const TensorSpec& spec : plan.specs()) layouts.push_back(spec.layout);
  return layouts;
}

class Conv2dTest : public OpsTest {};

TEST_P(Conv2dTest, Forward) {
  for (const Problem& p : problems()) check(forward(p));
}

TEST_P(Conv2dTest, BackwardData) {
  for (const Problem& p : problems()) check(backward_data(p));
}

TEST_P(Conv2dTest, BackwardWeights) {
  for (const Problem& p : problems()) check(backward_weights(p));
}

// As in a compiled network: the forward plan chooses the layouts, and gradients use the same.
TEST_P(Conv2dTest, BackwardInTheLayoutsOfTheForwardPlan) {
  for (const Problem& p : problems()) {
    const Case c = forward(p);
    for (const std::vector<Layout>& asked : variations(c)) {
      const auto plan = target_.backend().plan(c.op, specs_of(c, asked));
      const std::vector<Layout> chosen = chosen_by(*plan);
      using F = Conv2dForward;
      check(c, chosen);
      check(backward_data(p), {chosen[F::kY], chosen[F::kWeight], chosen[F::kX]});
      check(backward_weights(p),
            {chosen[F::kX], chosen[F::kY], chosen[F::kWeight], chosen[F::kBias]});
    }
  }
}

// Gradients of a second use are added in any layout of the weight, and checkpoints store weights in
// row-major order.
TEST_P(Conv2dTest, AddsAndReordersWeightsInAnyLayout) {
  for (const Problem& p : problems()) {
    const Case c = forward(p);
    const auto plan = target_.backend().plan(
        c.op, specs_of(c, std::vector<Layout>(c.tensors.size(), Layout::any())));
    const Layout layout = plan->specs()[Conv2dForward::kWeight].layout;
    const Shape shape = p.weight();
    const Layout row = Layout::row_major();
    check({p.name, Add{}, {random(full(shape), 5), random(full(shape), 6), full(shape)}},
          {layout, layout, layout});
    check({p.name, Reorder{}, {random(full(shape), 5), full(shape)}}, {row, layout});
    check({p.name, Reorder{}, {random(full(shape), 5), full(shape)}}, {layout, row});
  }
}

TRIREME_ON_TARGETS(Conv2dTest, multiplying_targets());

}  // namespace
}  // namespace trireme::ops
