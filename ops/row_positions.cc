#include "ops/row_positions.h"

#include <fmt/format.h>

#include "ops/op.h"

namespace trireme::ops {

int64_t part_rows(const TensorSpec& starts, int64_t rows) {
  return is_absent(starts) ? 0 : rows / starts.shape[0];
}

void check_whole_sequences(const Checker& c, int64_t rows, int64_t length) {
  if (rows % length == 0) return;
  c.refuse(fmt::format("{} rows are not a multiple of the length {}", rows, length));
}

void check_parts(const Checker& c, int starts, int64_t rows) {
  c.rank(starts, 1);
  const int64_t parts = c.shape(starts)[0];
  c.is_i32(starts, {parts});
  if (rows % parts != 0) c.refuse(fmt::format("{} rows are not {} equal parts", rows, parts));
}

}  // namespace trireme::ops
