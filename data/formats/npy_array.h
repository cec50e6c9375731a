// Reads and writes NumPy arrays: .npy files of versions 1 to 3.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "core/tensor.h"

namespace trireme::data {

// A view of an array; does not own its elements.
struct NpyArray {
  DType dtype = DType::kF32;  // u8, i32, i64, f32 or f64
  std::vector<int64_t> shape;
  std::span<const uint8_t> elements;  // fewer than the shape requires if the file is truncated

  int64_t rows() const { return shape.empty() ? 1 : shape[0]; }  // declared by the header
  int64_t row_elements() const;                                  // at most INT64_MAX
  // Returns the number of rows that are entirely in the file.
  int64_t complete_rows() const;
  bool complete() const { return complete_rows() == rows(); }
  // Returns "f32 [60000, 28, 28]".
  std::string describe() const;
};

// Returns a view of the array in a .npy file. Throws DataError if the bytes are not such a file, or
// if the array is unsupported (big-endian, Fortran order, objects, other types). `where` names the
// file, or the file and archive member, in messages. A truncated array is not an error.
NpyArray parse_npy(std::span<const uint8_t> bytes, const std::string& where);
// Returns the message of a DataError about an array that is not complete.
std::string describe_truncation(const NpyArray& array);

// Returns the spec of samples that have the extents of the array from dimension `first` on. They
// must be u8 images [H, W] or [H, W, C] (channels-last), u8 [F], or f32 or f64 [C, H, W] or [F],
// which both become f32. Throws DataError otherwise.
TensorSpec sample_spec(const NpyArray& array, size_t first, const std::string& where);
// Returns the index of the first value that is NaN or infinite, or -1 if all are finite.
int64_t first_not_finite(std::span<const float> values);

// Copies the elements of one sample, converting them to f32 if the spec's dtype is f32.
void copy_sample(const TensorSpec& spec, DType dtype, const uint8_t* from, std::byte* to);

// Returns the bytes of a .npy file. `elements` are in row-major order.
std::vector<uint8_t> encode_npy(DType dtype, std::span<const int64_t> shape,
                                std::span<const uint8_t> elements);

// Converts to.size() elements to f32. `from` may have any alignment.
void to_floats(DType dtype, const uint8_t* from, std::span<float> to);
// Returns an element of type u8, i32 or i64.
int64_t to_integer(DType dtype, const uint8_t* from);

}  // namespace trireme::data
