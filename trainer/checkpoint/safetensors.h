// Reads and writes files in the safetensors format (https://github.com/huggingface/safetensors):
// eight bytes of little-endian header length, a JSON header, and the values of named tensors in
// row-major order. Tensors are written as F32 and read from F64, F32, F16 and BF16. A file may
// contain tensors of other types, which cannot be read.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "core/descriptor.h"
#include "core/shape.h"

namespace trireme::train {

struct SafetensorsEntry {
  std::string name;
  Shape shape;
};

// Returns the beginning of a file with these entries, to be followed by their values in this order
// without gaps. Its length is a multiple of 64 bytes. The header has the given metadata in addition
// to the format.
std::string safetensors_header(std::span<const SafetensorsEntry> entries,
                               const std::map<std::string, std::string>& metadata = {});

class SafetensorsReader {
 public:
  // Throws DataError naming the file if it is not in this format or is truncated.
  explicit SafetensorsReader(const std::filesystem::path& path);
  // Reads an open file, which may have been deleted; `path` is its name in errors.
  SafetensorsReader(const std::filesystem::path& path, std::shared_ptr<const Descriptor> file);

  std::vector<std::string> names() const;
  // Returns the strings of "__metadata__".
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  bool has(const std::string& name) const { return tensors_.contains(name); }
  // Throws DataError if there is no such tensor.
  const Shape& shape(const std::string& name) const { return find(name).shape; }
  // Throws DataError unless the tensor can be read into this shape.
  void require(const std::string& name, const Shape& shape) const;
  // Reads a tensor and converts it to f32. Throws DataError if there is no such tensor, or if it
  // has a different shape or a type that cannot be read.
  void read(const std::string& name, const Shape& shape, std::span<float> out) const;
  // Reads a tensor of any shape, otherwise like above.
  std::vector<float> read(const std::string& name) const;

 private:
  struct Tensor {
    Shape shape;
    std::string dtype;   // "BF16"
    uint64_t begin = 0;  // in the file
    uint64_t end = 0;
  };
  void read_header();
  void check_layout(uint64_t values, uint64_t size) const;
  void add(const std::string& name, const nlohmann::json& entry, uint64_t values, uint64_t size);
  const Tensor& find(const std::string& name) const;
  void require_readable(const std::string& name, const Tensor& tensor) const;
  void read_values(const Tensor& tensor, std::span<float> out) const;
  void read_at(uint64_t offset, void* out, size_t bytes) const;

  std::filesystem::path path_;
  std::shared_ptr<const Descriptor> file_;
  std::map<std::string, Tensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace trireme::train
