#include "trainer/checkpoint/safetensors.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/error.h"
#include "temporary_folder.h"

namespace trireme::train {
namespace {

std::vector<float> counting(int64_t count, float from) {
  std::vector<float> values(static_cast<size_t>(count));
  std::iota(values.begin(), values.end(), from);
  return values;
}

void write_two(const std::filesystem::path& path) {
  const std::vector<SafetensorsEntry> entries{{"a.weight", Shape{2, 3}}, {"b", Shape{4}}};
  std::string bytes = safetensors_header(entries);
  for (const auto& values : {counting(6, 1), counting(4, 10)}) {
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  }
  spill(path, bytes);
}

std::string error_of(const std::filesystem::path& path) {
  try {
    const SafetensorsReader reader(path);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Safetensors, RoundTrip) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_two(path);
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a.weight", "b"}));
  std::vector<float> out(4);
  reader.read("b", Shape{4}, out);
  EXPECT_EQ(out, counting(4, 10));
  EXPECT_THROW(reader.read("b", Shape{2, 2}, out), DataError);
  EXPECT_THROW(reader.read("c", Shape{4}, out), DataError);
}

TEST(Safetensors, WritesTheDocumentedLayout) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  write_two(path);
  const std::string file = slurp(path);
  uint64_t length = 0;
  std::memcpy(&length, file.data(), 8);
  EXPECT_EQ((8 + length) % 64, 0u);
  const auto header = nlohmann::json::parse(file.substr(8, length));
  EXPECT_EQ(header["a.weight"],
            nlohmann::json::parse(R"({"dtype":"F32","shape":[2,3],"data_offsets":[0,24]})"));
  EXPECT_EQ(header["b"]["data_offsets"], nlohmann::json::parse("[24,40]"));
  float first_of_b = 0;
  std::memcpy(&first_of_b, file.data() + 8 + length + 24, 4);
  EXPECT_EQ(first_of_b, 10);
  EXPECT_EQ(file.size(), 8 + length + 40);
}

TEST(Safetensors, MetadataIsAddedToTheFormat) {
  const std::vector<SafetensorsEntry> entries{{"b", Shape{4}}};
  const std::string bytes = safetensors_header(entries, {{"classes", "[\"cat\"]"}});
  const auto header = nlohmann::json::parse(bytes.substr(8));
  EXPECT_EQ(header["__metadata__"],
            nlohmann::json::parse(R"({"classes":"[\"cat\"]","format":"pt"})"));
}

TEST(Safetensors, ErrorsNameTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  EXPECT_NE(error_of(path).find("No such file"), std::string::npos);
  spill(path, "abc");
  EXPECT_NE(error_of(path).find("too short"), std::string::npos);
  spill(path, std::string(100, '\x7f'));
  EXPECT_NE(error_of(path).find("header would be longer"), std::string::npos);
  spill(path, "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 535\n");
  EXPECT_NE(error_of(path).find("is not safetensors, but a Git LFS pointer"), std::string::npos);
  write_two(path);
  const std::string bytes = slurp(path);
  spill(path, bytes + "junk");
  EXPECT_EQ(error_of(path), fmt::format("{}: has 4 bytes after its last tensor, which ends at byte "
                                        "{}",
                                        path.string(), bytes.size()));
  spill(path, bytes.substr(0, 220));
  const std::string error = error_of(path);
  EXPECT_TRUE(error.starts_with(path.string())) << error;
  spill(path, bytes.substr(0, bytes.size() - 1));
  EXPECT_NE(error_of(path).find("is it truncated?"), std::string::npos);
}

TEST(Safetensors, RejectsInvalidTensorEntries) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  for (const char* entry :
       {R"({"dtype":"F32","shape":[2],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[-1],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,0]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[-4,0]})",
        R"({"dtype":"F32","shape":[1.5],"data_offsets":[0,4]})",
        R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})",
        R"({"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]})",
        R"({"dtype":"F32","shape":[1,1,1,1,1,1,1],"data_offsets":[0,4]})",
        R"({"dtype":"F16","shape":[1],"data_offsets":[0,4]})",
        R"({"dtype":"I8","shape":[4],"data_offsets":[0,8]})", R"({"shape":[1]})", "7"}) {
    const std::string header = std::string("{\"a\":") + entry + "}";
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    spill(path, bytes + header + std::string(4, '\0'));
    EXPECT_TRUE(error_of(path).starts_with(path.string())) << entry << ": " << error_of(path);
    EXPECT_NE(error_of(path).find("'a'"), std::string::npos) << error_of(path);
  }
}

// Found by tests/fuzz: a float was converted to an offset.
TEST(Safetensors, RejectsOffsetsThatAreNotIntegers) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "x.safetensors";
  for (const char* offset : {"184467440737095509551615", "4.5", "true", "\"4\"", "-1"}) {
    const std::string header =
        std::string(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,)") + offset + "]}}";
    const uint64_t length = header.size();
    std::string bytes(8, '\0');
    std::memcpy(bytes.data(), &length, 8);
    spill(path, bytes + header + std::string(4, '\0'));
    EXPECT_NE(error_of(path).find("is not an integer in its range"), std::string::npos)
        << offset << ": " << error_of(path);
  }
}

}  // namespace
}  // namespace trireme::train
