#include "trainer/config/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "core/error.h"
#include "model/onnx/onnx.h"

namespace trireme::train {
namespace {

constexpr float kPixelScale = 1.0F / 255;

// Returns the factor by which the data's values are scaled before normalization; nothing if it
// depends on the data's files.
std::optional<float> scale_of(const DataConfig& data) {
  if (data.has_csv()) return data.csv().scale();
  if (!data.has_npy()) return kPixelScale;
  if (data.npy().has_scale()) return data.npy().scale();
  return std::nullopt;
}

// Returns true if the values of each channel are equal, except for rounding. One value applies to
// all channels; `unset` is the value if there is none.
bool nearly_equal(const google::protobuf::RepeatedField<float>& a,
                  const google::protobuf::RepeatedField<float>& b, float unset) {
  const auto at = [unset](const google::protobuf::RepeatedField<float>& values, int i) {
    return values.empty() ? unset : values[values.size() == 1 ? 0 : i];
  };
  const int count = std::max({1, a.size(), b.size()});
  for (int i = 0; i < count; ++i) {
    const bool in_both = (a.size() <= 1 || i < a.size()) && (b.size() <= 1 || i < b.size());
    if (!in_both || std::abs(at(a, i) - at(b, i)) > 1e-3F * std::max(1.0F, std::abs(at(a, i)))) {
      return false;
    }
  }
  return true;
}

// Whether a model normalizes pixels from 0 to 1. Pixels from 0 to 255 have larger deviations.
bool takes_unit_pixels(const model::InputNormalization& found) {
  const auto at_most_1 = [&](float value) { return std::abs(value / found.scale) <= 1; };
  return std::ranges::all_of(found.mean, at_most_1) && std::ranges::all_of(found.stddev, at_most_1);
}

std::string text_of(const NormalizeConfig& normalize) {
  return fmt::format("mean: [{}] std: [{}]", fmt::join(normalize.mean(), ", "),
                     fmt::join(normalize.std(), ", "));
}

// Sets data.normalize, which applies to scaled values, from the normalization of the file, which
// applies to stored values or to pixels from 0 to 1. Warns if it is set already and differs.
void import_normalization(const model::InputNormalization& found, const std::string& file,
                          Config& config) {
  if (found == model::InputNormalization()) return;
  const std::optional<float> scale = scale_of(config.run.data());
  if (!scale) {
    config.warnings.push_back(
        fmt::format("{} normalizes its input; make sure that data.normalize is the same", file));
    return;
  }
  const bool scaled = *scale == kPixelScale && takes_unit_pixels(found);
  const float factor = (scaled ? 1 : *scale) / found.scale;
  NormalizeConfig normalize;
  for (const float mean : found.mean) normalize.add_mean(mean * factor);
  for (const float stddev : found.stddev) normalize.add_std(stddev * factor);
  DataConfig& data = *config.run.mutable_data();
  if (!data.has_normalize()) {
    *data.mutable_normalize() = normalize;
  } else if (!nearly_equal(data.normalize().mean(), normalize.mean(), 0) ||
             !nearly_equal(data.normalize().std(), normalize.std(), 1)) {
    config.warnings.push_back(fmt::format(
        "data.normalize is not the normalization of {}, which is {}", file, text_of(normalize)));
  }
}

// Unsets the units of a dense layer before the loss, so that the data determines them, unless they
// are those of an embedding.
void unset_head_units(NetworkConfig& network) {
  if (network.layer_size() < 2) return;
  const LayerConfig& loss = network.layer(network.layer_size() - 1);
  for (LayerConfig& layer : *network.mutable_layer()) {
    const bool last = loss.input().empty() ? &layer == &network.layer(network.layer_size() - 2)
                                           : layer.name() == loss.input(0);
    if (!last || !layer.has_dense() || layer.dense().has_tied_to()) continue;
    layer.mutable_dense()->clear_units();
  }
}

}  // namespace

void import_model(Config& config) {
  if (!config.run.model().has_onnx()) return;
  const std::string file = config.run.model().onnx();
  model::OnnxModel found;
  try {
    found = model::read_onnx(file);
  } catch (const ConfigError& error) {
    throw ConfigError(config.where("model.onnx"), error.what());
  }
  NetworkConfig& network = found.network;
  if (config.run.data().csv().regression()) {
    network.mutable_layer(network.layer_size() - 1)->mutable_mean_squared_error();
  } else {
    unset_head_units(network);
  }
  ModelConfig& model = *config.run.mutable_model();
  *model.mutable_network() = std::move(network);
  if (!model.has_init_from()) model.set_init_from(file);
  import_normalization(found.normalization, file, config);
}

}  // namespace trireme::train
