// Values as ONNX files hold them: typed or as raw bytes, in the file or in one beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/onnx/onnx.pb.h"
#include "model/weights.h"

namespace trireme::model::onnx {

// Reads tensors of one file. Nothing is allocated before it is known that the values are there.
class TensorReader {
 public:
  explicit TensorReader(std::filesystem::path file) : file_(std::move(file)) {}

  // Of f32, f16, bf16, f64 or i32 and i64. Throw DataError naming file and tensor.
  std::vector<float> floats(const TensorProto& tensor) const;
  std::vector<int64_t> integers(const TensorProto& tensor) const;
  int64_t elements(const TensorProto& tensor) const;

 private:
  [[noreturn]] void damaged(const TensorProto& tensor, const std::string& why) const;
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

// f32 as raw bytes.
void write_tensor(const std::string& name, const Shape& shape, const std::vector<float>& values,
                  TensorProto& tensor);

}  // namespace trireme::model::onnx
