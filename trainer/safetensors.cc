#include "trainer/safetensors.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "trainer/json.h"

namespace trireme {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string safetensors_header(std::span<const SafetensorsEntry> entries) {
  nlohmann::ordered_json header = {{"__metadata__", {{"format", "pt"}}}};
  int64_t offset = 0;
  for (const SafetensorsEntry& entry : entries) {
    const int64_t end = offset + entry.shape.elements() * static_cast<int64_t>(sizeof(float));
    header[entry.name] = {{"dtype", "F32"},
                          {"shape", std::vector<int64_t>(entry.shape.begin(), entry.shape.end())},
                          {"data_offsets", {offset, end}}};
    offset = end;
  }
  const std::string text = header.dump();
  uint64_t length = 0;
  std::string bytes((sizeof length + text.size() + 63) / 64 * 64, ' ');  // aligns the values
  length = bytes.size() - sizeof length;
  std::memcpy(bytes.data(), &length, sizeof length);
  bytes.replace(sizeof length, text.size(), text);
  return bytes;
}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path)
    : path_(path), file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (file_ < 0)
    throw DataError(path_.string(), std::string("cannot be read: ") + std::strerror(errno));
  try {
    read_header();
  } catch (...) {
    ::close(file_);
    throw;
  }
}

SafetensorsReader::~SafetensorsReader() { ::close(file_); }

void SafetensorsReader::read_header() {
  struct stat status {};
  ::fstat(file_, &status);
  const auto size = static_cast<uint64_t>(status.st_size);
  uint64_t length = 0;
  if (size < sizeof length) throw DataError(path_.string(), "is too short for safetensors");
  read_at(0, &length, sizeof length);
  if (length > size - sizeof length) {
    throw DataError(path_.string(), "is not safetensors: its header would be longer than the file");
  }
  std::string text(length, '\0');
  read_at(sizeof length, text.data(), length);
  const uint64_t values = sizeof length + length;
  try {
    const auto header = nlohmann::json::parse(text);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      if (entry.at("dtype") != "F32") {
        throw DataError(path_.string(), fmt::format("tensor '{}' is {}, not F32", name,
                                                    entry.at("dtype").get<std::string>()));
      }
      const auto extents = whole_numbers<int64_t>(entry.at("shape"));
      const auto offsets = whole_numbers<uint64_t>(entry.at("data_offsets"));
      uint64_t wanted = sizeof(float);
      bool possible = extents.size() <= Shape::kMaxRank && offsets.size() == 2 &&
                      offsets[0] <= offsets[1] && offsets[1] <= size - values;
      for (const int64_t extent : extents) {
        possible = possible && extent >= 0 &&
                   !__builtin_mul_overflow(wanted, static_cast<uint64_t>(extent), &wanted);
      }
      if (!possible || offsets[1] - offsets[0] != wanted) {
        throw DataError(
            path_.string(),
            fmt::format(
                "tensor '{}' lies beyond the end of the file or is not as long as its shape",
                name));
      }
      const Tensor tensor{Shape(extents), values + offsets[0], values + offsets[1]};
      tensors_.emplace(name, tensor);
    }
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {  // of JSON, or of a number in it
    throw DataError(path_.string(), fmt::format("is not safetensors: {}", error.what()));
  }
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

void SafetensorsReader::read(const std::string& name, const Shape& shape,
                             std::span<float> out) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    throw DataError(path_.string(), fmt::format("holds no tensor '{}'", name));
  if (!(found->second.shape == shape)) {
    throw DataError(path_.string(),
                    fmt::format("tensor '{}' has shape {}, wanted {}", name,
                                found->second.shape.to_string(), shape.to_string()));
  }
  read_at(found->second.begin, out.data(), out.size_bytes());
}

void SafetensorsReader::read_at(uint64_t offset, void* out, size_t bytes) const {
  for (auto* to = static_cast<char*>(out); bytes > 0;) {
    const ssize_t got = ::pread(file_, to, bytes, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw DataError(path_.string(), "ends too early or cannot be read");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace trireme
