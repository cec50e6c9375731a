// Runs single ops of a backend on host memory and checks which memory they access.
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
using Alias = std::pair<int, int>;  // {output, input} that share memory

constexpr std::byte kPoison{0xFF};  // NaN in every floating-point dtype

// A backend and its device.
class Bench {
 public:
  Bench(std::unique_ptr<Device> device, const BackendMaker& maker);

  Backend& backend() { return *backend_; }
  // Convert between row-major numbers and the memory of a tensor with this spec.
  Bytes pack(const TensorSpec& spec, std::span<const double> values);
  std::vector<double> unpack(const TensorSpec& spec, const Bytes& bytes);
  // Runs a plan on copies of `memory` (empty for absent arguments) and returns their contents
  // afterwards. Fails the test if the plan writes beyond an argument or its scratch, or to an
  // input. `shifts` are offsets in bytes of each argument from aligned memory.
  std::vector<Bytes> run(const Op& op, const OpPlan& plan, const std::vector<Bytes>& memory,
                         std::optional<Alias> alias = {}, std::span<const size_t> shifts = {});

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Stream> stream_;
};

}  // namespace trireme::ops
