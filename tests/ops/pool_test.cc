// Pooling against the reference.
#include "ops/pool.h"

#include "ops/window.h"
#include "tests/ops/harness.h"

namespace trireme::ops {
namespace {

struct Problem {
  std::string name;
  Shape x;
  PoolGeometry geometry;

  Shape y() const {
    const PoolGeometry& g = geometry;
    return {x[0], x[1], windows(x[2], g.kernel[0], g.stride[0], g.padding[0]),
            windows(x[3], g.kernel[1], g.stride[1], g.padding[1])};
  }
};

std::vector<Problem> problems() {
  const PoolGeometry halve{.kernel = {2, 2}, .stride = {2, 2}};
  const PoolGeometry stem{.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}};
  return {{"halve", {2, 6, 8, 8}, halve},
          {"halve, rest left over", {5, 16, 7, 5}, halve},
          {"stem", {2, 64, 8, 8}, stem},
          {"stem, odd", {1, 17, 7, 5}, stem},
          {"one channel", {2, 1, 5, 8}, stem},
          {"three channels", {5, 3, 7, 7}, {.kernel = {3, 2}, .stride = {1, 2}, .padding = {1, 0}}},
          {"global", {2, 32, 7, 7}, {.kernel = {7, 7}, .stride = {7, 7}}},
          {"one place", {5, 16, 1, 1}, {.kernel = {1, 1}, .stride = {1, 1}}},
          {"mostly padding", {2, 6, 1, 1}, {.kernel = {3, 3}, .stride = {1, 1}, .padding = {1, 1}}},
          {"gaps", {1, 17, 8, 8}, {.kernel = {1, 1}, .stride = {3, 3}}},
          {"overlapping", {2, 24, 7, 6}, {.kernel = {3, 4}, .stride = {1, 1}, .padding = {1, 2}}},
          {"more than 256 places", {1, 8, 19, 20}, {.kernel = {17, 18}, .stride = {2, 1}}}};
}

// Few distinct values, so that there are many ties, and all negative, so that padding would be the
// maximum if it took part.
std::vector<TestTensor> inputs(const Problem& p) {
  TestTensor ties = random(image(p.x), 1);
  TestTensor negative = uniform(image(p.x), 2, -2, -1);
  for (double& value : ties.values) value = value > 0 ? 1 : -1;
  return {random(image(p.x), 1), ties, negative};
}

class PoolTest : public OpsTest {};

TEST_P(PoolTest, MaxForwardInInference) {
  for (const Problem& p : problems()) {
    for (const TestTensor& x : inputs(p)) {
      check({p.name, MaxPoolForward{p.geometry}, {x, image(p.y()), none()}});
    }
  }
}

TEST_P(PoolTest, MaxForwardThenBackward) {
  for (const Problem& p : problems()) {
    for (const TestTensor& x : inputs(p)) {
      const Case forward{p.name, MaxPoolForward{p.geometry}, {x, image(p.y()), workspace({}, {})}};
      check(forward);
      const auto reference = reference_memory(forward);
      for (const auto& asked : variations(forward)) {
        const auto [specs, memory] = target_memory(forward, asked);
        using F = MaxPoolForward;
        check({p.name,
               MaxPoolBackward{p.geometry},
               {random(image(p.y()), 3), workspace(memory[F::kWorkspace], reference[F::kWorkspace]),
                image(p.x)}},
              {specs[F::kY].layout, Layout::row_major(), specs[F::kX].layout});
      }
    }
  }
}

TEST_P(PoolTest, UnalignedTensors) {
  const Problem p{"stem", {2, 16, 7, 5}, {.kernel = {3, 3}, .stride = {2, 2}, .padding = {1, 1}}};
  for (Case c :
       {Case{"max",
             MaxPoolForward{p.geometry},
             {random(image(p.x), 1), image(p.y()), workspace({}, {})}},
        Case{"average", AveragePoolForward{p.geometry}, {random(image(p.x), 1), image(p.y())}},
        Case{"average", AveragePoolBackward{p.geometry}, {random(image(p.y()), 1), image(p.x)}}}) {
    c.unaligned = true;
    check(c);
  }
}

TEST_P(PoolTest, AverageForward) {
  for (const Problem& p : problems()) {
    for (bool include_padding : {true, false}) {
      check({p.name,
             AveragePoolForward{p.geometry, include_padding},
             {random(image(p.x), 1), image(p.y())}});
    }
  }
}

TEST_P(PoolTest, AverageBackward) {
  for (const Problem& p : problems()) {
    for (bool include_padding : {true, false}) {
      check({p.name,
             AveragePoolBackward{p.geometry, include_padding},
             {random(image(p.y()), 3), image(p.x)}});
    }
  }
}

TRIREME_ON_ALL_TARGETS(PoolTest);

}  // namespace
}  // namespace trireme::ops
