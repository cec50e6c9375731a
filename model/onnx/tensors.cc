#include "model/onnx/tensors.h"

#include <fmt/format.h>

#include <bit>
#include <cstring>
#include <fstream>
#include <limits>
#include <type_traits>

#include "core/error.h"
#include "core/half.h"
#include "core/parse_number.h"
#include "core/text.h"

namespace trireme::model::onnx {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

namespace fs = std::filesystem;

// The place of a tensor's values in an external file.
struct External {
  std::string location;
  uint64_t offset = 0;
};

// Returns whether the path stays in the folder of the model. A model from an untrusted source must
// not be able to read other files.
bool is_in_folder(const fs::path& location) {
  if (location.empty() || location.is_absolute()) return false;
  for (const fs::path& part : location) {
    if (part == "..") return false;
  }
  return true;
}

template <class To, class From>
To cast(From value) {
  return static_cast<To>(value);
}

}  // namespace

void TensorReader::throw_damaged(const TensorProto& tensor, const std::string& why) const {
  throw DataError(file_.string(), fmt::format("tensor '{}' {}", tensor.name(), why));
}

int64_t TensorReader::elements(const TensorProto& tensor) const {
  int64_t count = 1;
  for (const int64_t extent : tensor.dims()) {
    if (extent < 0) throw_damaged(tensor, fmt::format("has a negative dimension, {}", extent));
    if (__builtin_mul_overflow(count, extent, &count)) throw_damaged(tensor, "is too large");
  }
  return count;
}

std::string TensorReader::raw_bytes(const TensorProto& tensor, uint64_t wanted) const {
  if (tensor.data_location() != TensorProto::EXTERNAL) {
    if (tensor.raw_data().size() != wanted) {
      throw_damaged(tensor, fmt::format("should have {} bytes, but has {}", wanted,
                                        tensor.raw_data().size()));
    }
    return tensor.raw_data();
  }
  External external;
  for (const StringStringEntryProto& entry : tensor.external_data()) {
    if (entry.key() == "location") external.location = entry.value();
    if (entry.key() != "offset" && entry.key() != "length") continue;
    const auto number = parse_number<uint64_t>(entry.value());
    if (!number) {
      throw_damaged(tensor, fmt::format("has the invalid {} '{}'", entry.key(), entry.value()));
    }
    if (entry.key() == "offset") external.offset = *number;
    if (entry.key() == "length" && *number != wanted) {
      throw_damaged(tensor,
                    fmt::format("should have {} bytes, but its length is {}", wanted, *number));
    }
  }
  if (external.location.find('\0') != std::string::npos) {
    throw_damaged(tensor, fmt::format("is in '{}', which has a NUL in its name",
                                      printable(external.location)));
  }
  if (!is_in_folder(external.location)) {
    throw_damaged(tensor, fmt::format("is in '{}', outside the folder of the model",
                                      printable(external.location)));
  }
  const fs::path path = file_.parent_path() / external.location;
  std::error_code error;
  if (!fs::is_regular_file(path, error)) {
    throw_damaged(tensor, fmt::format("is in {}, which is not a file; it belongs to the model and "
                                      "must be copied with it",
                                      path.string()));
  }
  const uint64_t size = fs::file_size(path, error);
  if (error || size < wanted || external.offset > size - wanted) {
    throw_damaged(tensor, fmt::format("is not in {}: it needs {} bytes from offset {} of {} bytes",
                                      path.string(), wanted, external.offset, size));
  }
  std::string bytes(wanted, '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(external.offset));
  if (!file.read(bytes.data(), static_cast<std::streamsize>(wanted))) {
    throw DataError(path.string(), "cannot be read");
  }
  return bytes;
}

template <class To, class Stored>
std::vector<To> TensorReader::from_bytes(const TensorProto& tensor, int64_t count,
                                         To (*convert)(Stored)) const {
  if (count > std::numeric_limits<int64_t>::max() / static_cast<int64_t>(sizeof(Stored))) {
    throw_damaged(tensor, "is too large");
  }
  const std::string bytes = raw_bytes(tensor, static_cast<uint64_t>(count) * sizeof(Stored));
  std::vector<To> values(count);
  if constexpr (std::is_same_v<To, Stored>) {
    if (!bytes.empty()) std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  for (size_t i = 0; i < values.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof stored, sizeof stored);
    values[i] = convert(stored);
  }
  return values;
}

template <class To, class Field, class Convert>
std::vector<To> TensorReader::from_field(const TensorProto& tensor, int64_t count,
                                         const Field& field, Convert convert) const {
  if (field.size() != count) {
    throw_damaged(tensor, fmt::format("should have {} values, but has {}", count, field.size()));
  }
  std::vector<To> values;
  values.reserve(count);
  for (const auto value : field) values.push_back(convert(value));
  return values;
}

template <class To>
std::vector<To> TensorReader::values(const TensorProto& tensor) const {
  const int64_t count = elements(tensor);
  const bool raw = tensor.has_raw_data() || tensor.data_location() == TensorProto::EXTERNAL;
  switch (tensor.data_type()) {
    case TensorProto::FLOAT:
      return raw ? from_bytes(tensor, count, cast<To, float>)
                 : from_field<To>(tensor, count, tensor.float_data(), cast<To, float>);
    case TensorProto::DOUBLE:
      return raw ? from_bytes(tensor, count, cast<To, double>)
                 : from_field<To>(tensor, count, tensor.double_data(), cast<To, double>);
    case TensorProto::INT64:
      return raw ? from_bytes(tensor, count, cast<To, int64_t>)
                 : from_field<To>(tensor, count, tensor.int64_data(), cast<To, int64_t>);
    case TensorProto::INT32:
      return raw ? from_bytes(tensor, count, cast<To, int32_t>)
                 : from_field<To>(tensor, count, tensor.int32_data(), cast<To, int32_t>);
    case TensorProto::FLOAT16:
    case TensorProto::BFLOAT16: {
      float (*const to_float)(uint16_t) =
          tensor.data_type() == TensorProto::FLOAT16 ? from_f16 : from_bf16;
      if constexpr (std::is_same_v<To, float>) {
        return raw ? from_bytes(tensor, count, to_float)
                   : from_field<To>(tensor, count, tensor.int32_data(), [to_float](int32_t bits) {
                       return to_float(static_cast<uint16_t>(bits));
                     });
      }
      break;
    }
    default:
      break;
  }
  throw_damaged(tensor, fmt::format("has an unsupported type (data_type {})", tensor.data_type()));
}

std::vector<float> TensorReader::floats(const TensorProto& tensor) const {
  return values<float>(tensor);
}

std::vector<int64_t> TensorReader::integers(const TensorProto& tensor) const {
  if (tensor.data_type() != TensorProto::INT64 && tensor.data_type() != TensorProto::INT32) {
    throw_damaged(tensor, "should contain integers");
  }
  return values<int64_t>(tensor);
}

void write_tensor(const std::string& name, const Shape& shape, const std::vector<float>& values,
                  TensorProto& tensor) {
  tensor.set_name(name);
  tensor.set_data_type(TensorProto::FLOAT);
  for (const int64_t extent : shape) tensor.add_dims(extent);
  tensor.set_raw_data(values.data(), values.size() * sizeof(float));
}

}  // namespace trireme::model::onnx
