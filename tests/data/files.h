// Temporary data files for tests.
#pragma once

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "data/data.pb.h"
#include "data/dataset.h"

namespace trireme::testing {

// A temporary folder, removed with its contents by the destructor.
class Folder {
 public:
  Folder() {
    std::string name = ::testing::TempDir() + "/trireme-data-XXXXXX";
    if (!mkdtemp(name.data())) throw Error("cannot create a temporary folder " + name);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path(const std::string& name = "") const { return path_ + "/" + name; }
  void write(const std::string& name, std::string_view bytes) const {
    std::filesystem::create_directories(std::filesystem::path(path(name)).parent_path());
    std::ofstream(path(name), std::ios::binary) << bytes;
  }
  // Parses a DataConfig and sets its root to this folder.
  DataConfig config(const std::string& text) const {
    DataConfig config;
    if (!google::protobuf::TextFormat::ParseFromString(text, &config)) throw Error("bad: " + text);
    config.set_root(path_);
    return config;
  }

 private:
  std::string path_;
};

inline std::string gzip(std::string_view bytes) {
  z_stream stream{};
  deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Returns bytes that vary with their position.
inline std::string pixels(size_t count, size_t from = 0) {
  std::string bytes(count, '\0');
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>((from + i) * 37 % 251);
  return bytes;
}

inline std::string idx(std::initializer_list<uint32_t> extents, std::string_view elements) {
  std::string bytes{0, 0, 8, static_cast<char>(extents.size())};
  for (const uint32_t extent : extents) {
    for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(extent >> shift);
  }
  return bytes.append(elements);
}

template <class T>
std::vector<T> values(const std::vector<std::byte>& bytes) {
  std::vector<T> out(bytes.size() / sizeof(T));
  if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
  return out;
}

struct Sample {
  std::vector<std::byte> input;
  std::vector<std::byte> target;
  int32_t label() const { return values<int32_t>(target)[0]; }
  bool operator==(const Sample&) const = default;
};

inline Sample sample(const data::Dataset& dataset, int64_t index) {
  Sample out{std::vector<std::byte>(dataset.spec().input.bytes()),
             std::vector<std::byte>(dataset.spec().target.bytes())};
  dataset.read({index}, out.input.data(), out.target.data());
  return out;
}

// Returns the message of the exception of type E that `work` throws.
template <class E, class Work>
std::string message(Work work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "no exception";
}

inline std::string data_error(const DataConfig& config, data::Part part = data::Part::kTraining) {
  return message<DataError>([&] { data::open_dataset(config, part); });
}
inline std::string config_error(const DataConfig& config, data::Part part = data::Part::kTraining) {
  return message<ConfigError>([&] { data::open_dataset(config, part); });
}

#define EXPECT_SAYS(text, part) EXPECT_THAT(text, ::testing::HasSubstr(part))

}  // namespace trireme::testing
