// Copies matrices to matrices with more or fewer columns.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/dtype.h"

namespace trireme::ops::cuda {

// Each row of y [rows, y_columns] gets the columns of the row of x [rows, x_columns], without those
// that it lacks, or followed by zeros. The elements have 2 or 4 bytes.
void copy_columns(Stream& stream, DType dtype, const void* x, int64_t rows, int64_t x_columns,
                  void* y, int64_t y_columns);

}  // namespace trireme::ops::cuda
