// Named tensors in one file, in the safetensors format
// (https://github.com/huggingface/safetensors): eight bytes of little-endian header length, a JSON
// header, then the values. Values are f32 in row-major order.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"

namespace trireme {

struct SafetensorsEntry {
  std::string name;
  Shape shape;
};

// What a file of these entries begins with; their values follow in this order, without gaps. Its
// length is a multiple of 64 bytes.
std::string safetensors_header(std::span<const SafetensorsEntry> entries);

class SafetensorsReader {
 public:
  // Throws DataError naming the file when it is not of the format or ends too early.
  explicit SafetensorsReader(const std::filesystem::path& path);
  ~SafetensorsReader();
  SafetensorsReader(const SafetensorsReader&) = delete;
  SafetensorsReader& operator=(const SafetensorsReader&) = delete;

  std::vector<std::string> names() const;
  bool has(const std::string& name) const { return tensors_.contains(name); }
  // Throws DataError when there is no such tensor or it has another shape.
  void read(const std::string& name, const Shape& shape, std::span<float> out) const;

 private:
  struct Tensor {
    Shape shape;
    uint64_t begin = 0;  // in the file
    uint64_t end = 0;
  };
  void read_header();
  void read_at(uint64_t offset, void* out, size_t bytes) const;

  std::filesystem::path path_;
  int file_;
  std::map<std::string, Tensor> tensors_;
};

}  // namespace trireme
