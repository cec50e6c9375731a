#include "ops/rotary.h"

#include <fmt/format.h>

#include <cmath>

#include "ops/row_positions.h"

namespace trireme::ops {

const OpInfo Rotary::kInfo{
    .name = "rotary",
    .args = {{"x", Use::kIn}, {"starts", Use::kIn, kOptional}, {"y", Use::kOut}},
    .aliases = {{kY, kX}}};
void Rotary::check(const Checker& c) const {
  c.rank(kX, 2);
  c.is(kY, c.shape(kX));
  c.at_least(1, {&length, 1}, "length");
  c.at_least(1, {&heads, 1}, "heads");
  c.at_least(2, {&head_dim, 1}, "head_dim");
  const int64_t rows = c.shape(kX)[0], columns = c.shape(kX)[1];
  if (c.present(kStarts)) {
    check_parts(c, kStarts, rows);
  } else {
    check_whole_sequences(c, rows, length);
  }
  if (head_dim % 2 != 0) c.refuse(fmt::format("head_dim must be even, got {}", head_dim));
  if (heads * head_dim > columns) {
    c.refuse(fmt::format("{} heads of {} do not fit {} columns", heads, head_dim, columns));
  }
}

std::vector<float> rotary_table(const Rotary& op) {
  std::vector<float> table;
  table.reserve(static_cast<size_t>(op.length * op.head_dim));
  for (int64_t t = 0; t < op.length; ++t) {
    for (int64_t i = 0; i < op.head_dim / 2; ++i) {
      const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(op.head_dim);
      const double angle = static_cast<double>(t) * std::pow(op.base, exponent);
      table.push_back(static_cast<float>(std::cos(angle)));
      table.push_back(static_cast<float>(op.inverse ? -std::sin(angle) : std::sin(angle)));
    }
  }
  return table;
}

}  // namespace trireme::ops
