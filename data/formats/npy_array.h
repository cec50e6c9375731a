// Arrays as NumPy saves them: .npy of versions 1 to 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace trireme::data {

// Of somebody else's bytes.
struct NpyArray {
  DType dtype = DType::kF32;  // u8, i32, i64, f32 or f64
  std::vector<int64_t> shape;
  std::span<const uint8_t> elements;  // fewer than announced where the file was cut

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }  // as announced
  int64_t row_elements() const;                                  // at most INT64_MAX
  // Rows that are there.
  int64_t whole_rows() const;
  bool whole() const { return whole_rows() == rows(); }
  // "f32 [60000, 28, 28]"
  std::string describe() const;
};

// Throws DataError when it is not such an array, or of a kind that is not read (big-endian, Fortran
// order, objects, other types). `where` is the file, or file and member.
NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& where);
// Why an array that is not whole is not, for DataError.
std::string what_is_missing(const NpyArray& array);

// Samples whose extents are those of the array from `first` on: images (u8 [H, W], [H, W, C]),
// channels-last, or u8 [F]; f32 [C, H, W] or [F], of f64 too. Throws DataError when they are none.
TensorSpec sample_spec(const NpyArray& array, size_t first, const std::string& where);
// The position of the first value that is NaN or infinite, -1 where all are finite.
int64_t first_not_finite(std::span<const float> values);

// As the spec has it: elements are copied, or made f32.
void copy_sample(const TensorSpec& spec, DType dtype, const uint8_t* from, std::byte* to);

// A .npy file of elements in row-major order.
std::vector<uint8_t> encode_npy(DType dtype, std::span<const int64_t> shape,
                                std::span<const uint8_t> elements);

// Elements as numbers to compute with. `from` holds to.size() of them, of any alignment.
void to_floats(DType dtype, const uint8_t* from, std::span<float> to);
// An element of u8, i32 or i64.
int64_t to_integer(DType dtype, const uint8_t* from);

}  // namespace trireme::data
