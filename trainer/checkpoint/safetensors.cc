#include "trainer/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/file_format.h"
#include "core/half.h"
#include "core/interrupted.h"
#include "trainer/base/json.h"

namespace trireme::train {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

namespace {

float same(float value) { return value; }
float from_f64(double value) { return static_cast<float>(value); }

// A type that can be read: its size and conversion to f32.
struct Storage {
  std::string_view dtype;
  size_t bytes;
  void (*convert)(const std::byte* from, std::span<float> to);
};

template <class Stored, float (*kConvert)(Stored)>
constexpr Storage stored_as(std::string_view dtype) {
  return {dtype, sizeof(Stored), [](const std::byte* from, std::span<float> to) {
            for (size_t i = 0; i < to.size(); ++i) {
              Stored value;
              std::memcpy(&value, from + i * sizeof value, sizeof value);
              to[i] = kConvert(value);
            }
          }};
}

constexpr Storage kReadable[] = {stored_as<float, same>("F32"), stored_as<double, from_f64>("F64"),
                                 stored_as<uint16_t, from_f16>("F16"),
                                 stored_as<uint16_t, from_bf16>("BF16")};

// The limit of the reference implementation.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;

const Storage* storage_of(std::string_view dtype) {
  const auto* found = std::ranges::find(kReadable, dtype, &Storage::dtype);
  return found == std::end(kReadable) ? nullptr : found;
}

}  // namespace

std::string safetensors_header(std::span<const SafetensorsEntry> entries,
                               const std::map<std::string, std::string>& metadata) {
  nlohmann::ordered_json header = {{"__metadata__", metadata}};
  header["__metadata__"]["format"] = "pt";
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
    : SafetensorsReader(path, std::make_shared<const Descriptor>(open_to_read(path))) {}

SafetensorsReader::SafetensorsReader(const std::filesystem::path& path,
                                     std::shared_ptr<const Descriptor> file)
    : path_(path), file_(std::move(file)) {
  read_header();
}

void SafetensorsReader::read_header() {
  struct stat status {};
  ::fstat(file_->number(), &status);
  const auto size = static_cast<uint64_t>(status.st_size);
  uint64_t length = 0;
  if (size < sizeof length) throw DataError(path_.string(), "is too short for safetensors");
  read_at(0, &length, sizeof length);
  if (length > size - sizeof length) {
    if (const std::string_view known = format_of_file(path_); !known.empty()) {
      throw DataError(path_.string(), fmt::format("is not safetensors, but {}", known));
    }
    throw DataError(path_.string(),
                    "is not safetensors, or truncated: its header would be longer than the file");
  }
  if (length > kMaxHeaderBytes) {
    throw DataError(path_.string(), fmt::format("has a header of {} bytes; at most {} are allowed",
                                                length, kMaxHeaderBytes));
  }
  std::string text(length, '\0');
  read_at(sizeof length, text.data(), length);
  const uint64_t values = sizeof length + length;
  try {
    const auto header = parse_json(text);
    if (!header.is_object()) {
      throw DataError(path_.string(), "is not safetensors: its header is not a JSON object");
    }
    for (const auto& [name, entry] : header.items()) {
      if (name != "__metadata__") add(name, entry, values, size);
    }
    const nlohmann::json metadata = header.value("__metadata__", nlohmann::json::object());
    for (const auto& [key, value] : metadata.items()) {
      if (value.is_string()) metadata_[key] = value.get<std::string>();
    }
  } catch (const DataError&) {
    throw;
  } catch (const std::exception& error) {  // invalid JSON
    throw DataError(path_.string(), fmt::format("is not safetensors: {}", json_problem(error)));
  }
  check_layout(values, size);
}

// Overlapping tensors would let a small file fill the memory. As the format demands, the file ends
// with the values of the last tensor.
void SafetensorsReader::check_layout(uint64_t values, uint64_t size) const {
  std::vector<std::pair<const Tensor*, const std::string*>> sorted;
  for (const auto& [name, tensor] : tensors_) {
    if (tensor.begin < tensor.end) sorted.emplace_back(&tensor, &name);
  }
  std::ranges::stable_sort(sorted, {}, [](const auto& one) { return one.first->begin; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i - 1].first->end <= sorted[i].first->begin) continue;
    throw DataError(path_.string(), fmt::format("tensors '{}' and '{}' overlap",
                                                *sorted[i - 1].second, *sorted[i].second));
  }
  const uint64_t end = sorted.empty() ? values : sorted.back().first->end;
  if (end < size) {
    throw DataError(
        path_.string(),
        fmt::format("has {} bytes after its last tensor, which ends at byte {}", size - end, end));
  }
}

void SafetensorsReader::add(const std::string& name, const nlohmann::json& entry, uint64_t values,
                            uint64_t size) {
  const auto refuse = [&](const std::string& problem) {
    throw DataError(path_.string(), fmt::format("tensor '{}' {}", name, problem));
  };
  std::vector<int64_t> extents;
  std::vector<uint64_t> offsets;
  std::string dtype;
  try {
    extents = integers_from<int64_t>(entry.at("shape"));
    offsets = integers_from<uint64_t>(entry.at("data_offsets"));
    dtype = entry.at("dtype").get<std::string>();
  } catch (const std::exception& error) {
    refuse(fmt::format("lacks a valid shape, data_offsets or dtype: {}", json_problem(error)));
  }
  if (extents.size() > Shape::kMaxRank) {
    refuse(fmt::format("has {} dimensions; at most {} are supported", extents.size(),
                       Shape::kMaxRank));
  }
  if (offsets.size() != 2 || offsets[0] > offsets[1] || offsets[1] > size - values) {
    refuse(fmt::format("has data_offsets [{}], but the file has {} bytes of data; is it truncated?",
                       fmt::join(offsets, ", "), size - values));
  }
  const Storage* storage = storage_of(dtype);
  uint64_t wanted = storage ? storage->bytes : 1;
  bool possible = true;
  for (const int64_t extent : extents) {
    possible = possible && extent >= 0 &&
               !__builtin_mul_overflow(wanted, static_cast<uint64_t>(extent), &wanted);
  }
  possible = possible && std::in_range<int64_t>(wanted);
  // The size of a type that cannot be read is not checked.
  if (!possible || (storage && offsets[1] - offsets[0] != wanted)) {
    refuse(fmt::format("has {} bytes, which does not match its shape [{}] of {}",
                       offsets[1] - offsets[0], fmt::join(extents, ", "), dtype));
  }
  tensors_.emplace(name, Tensor{Shape(extents), dtype, values + offsets[0], values + offsets[1]});
}

const SafetensorsReader::Tensor& SafetensorsReader::find(const std::string& name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    throw DataError(path_.string(), fmt::format("has no tensor '{}'", name));
  }
  return found->second;
}

std::vector<std::string> SafetensorsReader::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) names.push_back(name);
  return names;
}

void SafetensorsReader::require(const std::string& name, const Shape& wanted) const {
  const Tensor& tensor = find(name);
  if (!(tensor.shape == wanted)) {
    throw DataError(path_.string(), fmt::format("tensor '{}' has shape {} instead of {}", name,
                                                tensor.shape.to_string(), wanted.to_string()));
  }
  require_readable(name, tensor);
}

void SafetensorsReader::read(const std::string& name, const Shape& wanted,
                             std::span<float> out) const {
  require(name, wanted);
  read_values(find(name), out);
}

std::vector<float> SafetensorsReader::read(const std::string& name) const {
  const Tensor& tensor = find(name);
  require_readable(name, tensor);  // otherwise the shape may be larger than the file
  std::vector<float> values(static_cast<size_t>(tensor.shape.elements()));
  read_values(tensor, values);
  return values;
}

void SafetensorsReader::require_readable(const std::string& name, const Tensor& tensor) const {
  if (storage_of(tensor.dtype)) return;
  throw DataError(path_.string(),
                  fmt::format("tensor '{}' is {}; only F32, F64, F16 and BF16 can be read", name,
                              tensor.dtype));
}

void SafetensorsReader::read_values(const Tensor& tensor, std::span<float> out) const {
  const Storage& storage = *storage_of(tensor.dtype);
  if (storage.bytes == sizeof(float)) return read_at(tensor.begin, out.data(), out.size_bytes());
  std::vector<std::byte> bytes(tensor.end - tensor.begin);
  read_at(tensor.begin, bytes.data(), bytes.size());
  storage.convert(bytes.data(), out);
}

void SafetensorsReader::read_at(uint64_t offset, void* out, size_t bytes) const {
  for (auto* to = static_cast<char*>(out); bytes > 0;) {
    const ssize_t got = retry_interrupted(
        [&] { return ::pread(file_->number(), to, bytes, static_cast<off_t>(offset)); });
    if (got <= 0) throw DataError(path_.string(), "is truncated or cannot be read");
    to += got;
    offset += static_cast<uint64_t>(got);
    bytes -= static_cast<size_t>(got);
  }
}

}  // namespace trireme::train
