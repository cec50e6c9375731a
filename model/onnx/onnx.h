// Networks as ONNX models (https://onnx.ai/onnx/), for other programs to run and from other
// programs to go on training.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/shape.h"
#include "model/graph.h"
#include "model/model.pb.h"
#include "model/weights.h"

namespace trireme::model {

// How a model that begins with normalization sees a sample: (x * scale - mean[c]) / stddev[c],
// as in SampleSpec.
struct InputNormalization {
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> stddev{1};
  bool operator==(const InputNormalization&) const = default;
};

struct OnnxExportOptions {
  // The model takes samples as they are stored (pixels from 0 to 255, as f32 [N, C, H, W]) and
  // normalizes them itself; else it takes what the network computes with.
  bool normalize = true;
  // With `normalize`: the input times this is a sample as it is stored. 255: the model takes pixels
  // from 0 to 1.
  float input_unit = 1;
  // The input is a image, which its type then says.
  bool image = false;
  // The model ends with probabilities instead of logits.
  bool softmax = false;
  // What a user of the model has to know, as metadata: key and value.
  std::vector<std::pair<std::string, std::string>> metadata = {};
};

// The serialized model of a network without its loss and dropout: input "input", output "logits"
// ("output" in regression, "probabilities" with softmax), the batch open ("N"); nodes have the
// names of layers, initializers those of parameters. Throws ConfigError naming values that are
// missing or of another shape, and where there are more than the 2 GiB that an ONNX file can hold.
std::string to_onnx(const ModelConfig& model, const ModelInput& input, const Weights& weights,
                    const OnnxExportOptions& options = {});

struct OnnxModel {
  NetworkConfig network;  // with softmax_cross_entropy at its end
  Weights weights;        // by the names of the network's layers
  Shape input;            // of one sample; extents that the file leaves open are 0
  int64_t outputs = 0;    // logits; 0 where the file leaves them open
  // That the model begins with; not part of the network. Of samples as they are stored: where the
  // metadata says that the model takes pixels from 0 to 1, their division by 255 comes first.
  InputNormalization normalization;
};

// Throws DataError naming the file when it is damaged, ConfigError when it is not there or with
// every operator that has no layer here, by name and node.
OnnxModel read_onnx(const std::filesystem::path& path);

}  // namespace trireme::model
