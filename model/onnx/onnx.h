// Exports networks as ONNX models (https://onnx.ai/onnx/) and imports ONNX models for training.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/shape.h"
#include "model/graph.h"
#include "model/model.pb.h"
#include "model/weights.h"

namespace trireme::model {

// A normalization of the input at the beginning of a model: (x * scale - mean[c]) / stddev[c], with
// one value or one for each channel, as in ModelInput.
struct InputNormalization {
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> stddev{1};
  bool operator==(const InputNormalization&) const = default;
};

struct OnnxExportOptions {
  // The model normalizes its input, which is a sample as stored (for images, f32 [N, C, H, W] with
  // pixels from 0 to 255). If false, the caller of the model must normalize.
  bool normalize = true;
  // Used if `normalize` is set: the factor from the input to a sample as stored. 255 if the input
  // has pixels from 0 to 1.
  float input_unit = 1;
  // Marks the input as an image in its type.
  bool image = false;
  // The model ends with probabilities instead of logits.
  bool softmax = false;
  // Metadata for users of the model, as keys and values.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

// Returns the serialized ONNX model of a network without its loss and dropout. Its input is
// "input", its output "logits" ("output" in regression, "probabilities" with softmax), with the
// dynamic batch dimension "N". Tokens are i64; their number is dynamic, "T", up to the length of
// samples, if all layers allow it. Nodes have the names of layers, initializers those of
// parameters. Throws ConfigError if values are missing or have a different shape, or if they exceed
// the 2 GiB that an ONNX file can contain.
std::string to_onnx(const ModelConfig& model, const ModelInput& input, const Weights& weights,
                    const OnnxExportOptions& options = {});

struct OnnxModel {
  NetworkConfig network;         // with softmax_cross_entropy as its last layer
  Weights weights;               // by the names of the network's layers
  Shape input;                   // shape of one sample; dynamic dimensions are 0
  int64_t outputs = 0;           // number of logits; 0 if it is dynamic
  int64_t vocab_size = 0;        // of the tokens that the model reads; 0 if it reads other samples
  bool label_per_token = false;  // the model has logits for each token
  // The operators at the beginning of the model that normalize its input. They are not part of
  // `network`. If Trireme has written the file, they normalize samples as stored, and include a
  // division by 255 if the metadata declares an input from 0 to 1.
  InputNormalization normalization;
  bool written_by_trireme = false;
  std::map<std::string, std::string> metadata;
  // Parameters that are constants of the file, so that they must not be trained.
  std::vector<std::string> frozen;
  // One line for each decision that depends on what the file does not tell.
  std::vector<std::string> warnings;
};

// Returns whether the normalization is the identity.
bool is_identity(const InputNormalization& normalization);
// Returns the normalization that applies `first` and then `second` to the result. Throws Error if
// they have different numbers of channels.
InputNormalization chained(const InputNormalization& first, const InputNormalization& second);

// Reads an ONNX model. Throws a DataError that names the file if it is damaged. Throws ConfigError
// if there is no such file, or if operators cannot be imported; the message lists them all with
// their nodes.
OnnxModel read_onnx(const std::filesystem::path& path);

}  // namespace trireme::model
