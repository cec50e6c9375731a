#include "tests/ops/reference/reference_backend.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "tests/ops/reference/plans.h"

namespace trireme::ops {
namespace {

// Returns the dtype of an argument if it is not f64: metrics, labels, states and targets have
// dtypes that all backends share.
bool is_dtype_of(const Op& op, int arg, DType dtype) {
  const auto among = [dtype](std::initializer_list<DType> dtypes) {
    return std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
  };
  // Structs are stored as bytes.
  const auto is_struct = []<class O>(const O&, int i) {
    bool found = false;
    if constexpr (requires { O::kState; }) found |= i == O::kState;
    if constexpr (requires { O::kScale; }) found |= i == O::kScale;
    if constexpr (requires { O::kLossScale; }) found |= i == O::kLossScale;
    return found;
  };
  return std::visit(
      [&]<class O>(const O& chosen) {
        if constexpr (std::is_same_v<O, Reorder>) {
          return among({DType::kF64, DType::kF32, DType::kI32, DType::kU8});
        }
        if constexpr (std::is_same_v<O, NormalizeInput>) {
          if (arg == O::kX) return among({DType::kF64, DType::kF32, DType::kU8});
        }
        if constexpr (requires { O::kMetrics; }) {
          if (arg == O::kMetrics) return among({DType::kF64, DType::kF32});
        }
        if constexpr (requires { O::kLabels; }) {
          if (arg == O::kLabels) return among({DType::kI32, DType::kF32});
        }
        if constexpr (requires { O::kTokens; }) {
          if (arg == O::kTokens) return dtype == DType::kI32;
        }
        if constexpr (requires { O::kLengths; }) {
          if (arg == O::kLengths) return dtype == DType::kI32;
        }
        if constexpr (requires { O::kStarts; }) {
          if (arg == O::kStarts) return dtype == DType::kI32;
        }
        if constexpr (requires { O::kFirstKeys; }) {
          if (arg == O::kFirstKeys) return dtype == DType::kI32;
        }
        if constexpr (std::is_same_v<O, DocumentStarts> || std::is_same_v<O, SegmentIds>) {
          return dtype == DType::kI32;
        }
        if constexpr (requires { O::kTarget; }) {
          if (arg == O::kTarget) return among({DType::kF64, DType::kF32});
        }
        if constexpr (requires { O::kLowPrecision; }) {
          if (arg == O::kLowPrecision) return dtype == DType::kF32;
        }
        if constexpr (requires { O::kWorkspace; }) {
          if (arg == O::kWorkspace) return dtype == DType::kU8;
        }
        return dtype == (is_struct(chosen, arg) ? DType::kU8 : DType::kF64);
      },
      op);
}

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(Device& device) : device_(device) {}
  Device& device() override { return device_; }

  std::unique_ptr<OpPlan> plan(const Op& op, Specs asked) override {
    check_shapes(op, asked);
    reference::Specs specs(asked.begin(), asked.end());
    for (size_t i = 0; i < specs.size(); ++i) {
      TensorSpec& spec = specs[i];
      if (is_absent(spec)) continue;
      if (!is_dtype_of(op, static_cast<int>(i), spec.dtype)) {
        throw Error(fmt::format("{}: the reference does not take {} as argument {}", name_of(op),
                                spec.to_string(), i));
      }
      // A tensor without elements is a workspace, whose size the plan chooses.
      if (spec.shape.elements() == 0 || stays(op, i, spec.layout)) continue;
      spec.layout = Layout::row_major();
    }
    return std::visit([&](const auto& chosen) { return reference::plan(chosen, std::move(specs)); },
                      op);
  }

 private:
  // Stored inputs and both sides of a reorder keep their layout; everything else is row-major.
  static bool stays(const Op& op, size_t arg, const Layout& layout) {
    return layout.kind() == Layout::Kind::kChannelsLast &&
           (std::holds_alternative<Reorder>(op) ||
            (std::holds_alternative<NormalizeInput>(op) && arg == NormalizeInput::kX));
  }

  Device& device_;
};

}  // namespace

std::unique_ptr<Backend> create_reference_backend(Device& device) {
  return std::make_unique<ReferenceBackend>(device);
}

}  // namespace trireme::ops
