// Reads config.json, in which transformers describes the network whose weights it saves
// (https://huggingface.co/docs/transformers), and compares it with a network that is to compute the
// same.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/model.pb.h"

namespace trireme::train {

class TransformersConfig {
 public:
  // Throws DataError if the file cannot be read or is not a JSON object.
  explicit TransformersConfig(const std::filesystem::path& path);

  // Returns the names of the outputs (id2label), in their order; empty if there are none. Throws
  // DataError if they are not numbered from 0.
  std::vector<std::string> class_names() const;

  // Compares what transformers computes with what the network computes for samples of `length`
  // tokens (any number for other samples). The sizes of tensors are not compared. `zoo` says
  // whether the network is of the zoo, for messages. Throws ConfigError with a line for each entry
  // that differs or that Trireme cannot compute. Returns a text about entries that have not been
  // compared, since they are unknown; empty if there are none.
  std::string compare(const NetworkConfig& network, int64_t length, bool zoo) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const nlohmann::json> entries_;
};

}  // namespace trireme::train
