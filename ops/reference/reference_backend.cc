#include <fmt/format.h>

#include "core/error.h"
#include "ops/reference/plans.h"

namespace trireme {
namespace {

// Stored inputs and the ends of a reorder are taken as they lie; everything else must be row-major.
bool takes_any_layout(const Op& op, size_t arg) {
  return std::holds_alternative<Reorder>(op) ||
         (std::holds_alternative<NormalizeInput>(op) && arg == NormalizeInput::kX);
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(Device& device) : device_(device) {}
  Device& device() override { return device_; }

  std::unique_ptr<OpPlan> plan(const Op& op, std::span<const TensorSpec> asked) override {
    check_shapes(op, asked);
    reference::Specs specs(asked.begin(), asked.end());
    for (size_t i = 0; i < specs.size(); ++i) {
      if (specs[i].layout.is_any() || !takes_any_layout(op, i)) {
        if (is_absent(specs[i])) continue;
        specs[i].layout = specs[i].shape.elements() == 0 ? specs[i].layout : Layout::row_major();
      }
    }
    return std::visit([&](const auto& chosen) { return reference::plan(chosen, std::move(specs)); },
                      op);
  }

 private:
  Device& device_;
};

}  // namespace

std::unique_ptr<Backend> create_reference_backend(Device& device) {
  return std::make_unique<ReferenceBackend>(device);
}

}  // namespace trireme
