// Reads and writes the tensors of ONNX files: typed or as raw bytes, in the file or in an external
// file next to it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/onnx/onnx.pb.h"
#include "model/weights.h"

namespace trireme::model::onnx {

// Reads the tensors of one file. Checks that the file contains the values before it allocates
// memory.
class TensorReader {
 public:
  explicit TensorReader(std::filesystem::path file) : file_(std::move(file)) {}

  // Return the values of a tensor: floats() of f32, f16, bf16, f64, i32 or i64, integers() of i32
  // or i64. Throw a DataError that names the file and the tensor if the tensor is damaged or of
  // another type.
  std::vector<float> floats(const TensorProto& tensor) const;
  std::vector<int64_t> integers(const TensorProto& tensor) const;
  int64_t elements(const TensorProto& tensor) const;

 private:
  [[noreturn]] void throw_damaged(const TensorProto& tensor, const std::string& why) const;
  std::string raw_bytes(const TensorProto& tensor, uint64_t wanted) const;
  template <class To>
  std::vector<To> values(const TensorProto& tensor) const;
  template <class To, class Stored>
  std::vector<To> from_bytes(const TensorProto& tensor, int64_t count, To (*convert)(Stored)) const;
  template <class To, class Field, class Convert>
  std::vector<To> from_field(const TensorProto& tensor, int64_t count, const Field& field,
                             Convert convert) const;

  std::filesystem::path file_;
};

// Sets `tensor` to these values, as f32 in raw bytes.
void write_tensor(const std::string& name, const Shape& shape, const std::vector<float>& values,
                  TensorProto& tensor);

}  // namespace trireme::model::onnx
