#include "ops/backend.h"

namespace trireme::ops {
namespace {

const OpInfo& info_of(const Op& op) {
  return std::visit([]<class O>(const O&) -> const OpInfo& { return O::kInfo; }, op);
}

}  // namespace

std::string_view name_of(const Op& op) { return info_of(op).name; }

double flops(const Op& op, Specs specs) {
  return std::visit(
      [&](const auto& chosen) {
        if constexpr (requires { chosen.flops(specs); }) return chosen.flops(specs);
        return 0.0;
      },
      op);
}

std::span<const std::pair<int, int>> aliases(const Op& op) {
  const auto& pairs = info_of(op).aliases;
  return {pairs.begin(), pairs.size()};
}

bool is_output(const Op& op, int arg) {
  return info_of(op).arg(static_cast<size_t>(arg)).use != Use::kIn;
}

void check_shapes(const Op& op, Specs specs) {
  const OpInfo& info = info_of(op);
  const Checker checker(info, specs);
  if (!info.variadic) checker.count(info.args.size());
  std::visit([&](const auto& chosen) { chosen.check(checker); }, op);
  checker.none_missing();
}

}  // namespace trireme::ops
