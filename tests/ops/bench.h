// Runs single operations of one backend on plain memory, and watches what they touch.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "ops/backend.h"
#include "tests/ops/targets.h"

namespace trireme::ops {

using Bytes = std::vector<std::byte>;
using Alias = std::pair<int, int>;  // {output, input} in the same memory

constexpr std::byte kPoison{0xFF};  // NaN in every floating-point dtype

// One backend with memory of its own.
class Bench {
 public:
  Bench(std::unique_ptr<Device> device, const BackendMaker& maker);

  Backend& backend() { return *backend_; }
  // Between row-major numbers and memory of that spec.
  Bytes pack(const TensorSpec& spec, std::span<const double> values);
  std::vector<double> unpack(const TensorSpec& spec, const Bytes& bytes);
  // Runs a plan on copies of `memory` (empty: absent) and returns what they hold then. Fails the
  // test when the plan writes beyond an argument or its scratch, or into one that it only reads.
  // `shifts`: bytes by which each argument lies away from what memory is aligned to.
  std::vector<Bytes> run(const Op& op, const OpPlan& plan, const std::vector<Bytes>& memory,
                         std::optional<Alias> alias = {}, std::span<const size_t> shifts = {});

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace trireme::ops
