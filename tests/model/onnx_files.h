// Helpers for the tests of ONNX.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/error.h"
#include "tests/model/harness.h"

namespace trireme::model {

// Writes a file in the test's folder and returns its path.
inline std::filesystem::path file_of(const std::string& bytes,
                                     const std::string& name = "model.onnx") {
  const std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) /
      fmt::format("onnx.{}", testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::create_directories(folder);
  std::ofstream(folder / name, std::ios::binary) << bytes;
  return folder / name;
}

inline ModelConfig config_of(const NetworkConfig& network) {
  ModelConfig config;
  *config.mutable_network() = network;
  return config;
}

// The kind of each layer, in order.
using Kinds = std::vector<std::string>;
inline Kinds kinds_of(const OnnxModel& model) {
  Kinds kinds;
  for (const LayerConfig& layer : model.network.layer()) {
    kinds.emplace_back(make_layer(layer)->kind());
  }
  return kinds;
}

// Returns the message of the error of type E that `work` throws.
template <class E>
std::string error_message(const std::function<void()>& work) {
  try {
    work();
  } catch (const E& error) {
    return error.what();
  } catch (const Error& error) {
    return std::string("another error: ") + error.what();
  }
  return "accepted";
}

inline void expect_words(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

}  // namespace trireme::model
