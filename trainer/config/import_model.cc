#include "trainer/config/import_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "data/dataset.h"
#include "model/onnx/onnx.h"

namespace trireme::train {
namespace {

constexpr float kPixelScale = 1.0F / 255;

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

// Whether a model normalizes pixels from 0 to 1. The standard deviations of pixels from 0 to 255
// are larger.
bool takes_unit_pixels(const model::InputNormalization& found) {
  const auto at_most_1 = [&](float value) { return std::abs(value / found.scale) <= 1; };
  return std::ranges::all_of(found.mean, at_most_1) && std::ranges::all_of(found.stddev, at_most_1);
}

std::string text_of(const NormalizeConfig& normalize) {
  return fmt::format("mean: [{}] std: [{}]", fmt::join(normalize.mean(), ", "),
                     fmt::join(normalize.std(), ", "));
}

NormalizeConfig normalize_config(const model::InputNormalization& found, float factor) {
  NormalizeConfig normalize;
  for (const float mean : found.mean) normalize.add_mean(mean * factor);
  for (const float stddev : found.stddev) normalize.add_std(stddev * factor);
  return normalize;
}

bool nearly_equal(const NormalizeConfig& a, const NormalizeConfig& b) {
  return nearly_equal(a.mean(), b.mean(), 0) && nearly_equal(a.std(), b.std(), 1);
}

// Throws ConfigError if data.normalize is set to another normalization than that of the file, which
// applies to the same numbers.
void require_same_normalization(const NormalizeConfig& normalize, const std::string& file,
                                const Config& config) {
  const NormalizeConfig& given = config.run.data().normalize();
  if (nearly_equal(given, normalize)) return;
  throw ConfigError(
      config.where("data.normalize"),
      fmt::format("is {}, but {} normalizes the samples already, as the run that it was exported "
                  "from did: {}; remove data.normalize, or export with --no-normalize",
                  text_of(given), file, text_of(normalize)));
}

// Makes the operators that normalize the input of the file part of data.normalize, which applies to
// scaled numbers. In a file of Trireme they are the scale and the normalization of the data of the
// run. Those of others apply to what the configuration makes of the data; without data.normalize,
// that is pixels from 0 to 255 if the numbers are those of such pixels.
void import_normalization(const model::OnnxModel& model, const std::string& file, Config& config) {
  const model::InputNormalization& found = model.normalization;
  if (model::is_identity(found)) return;
  DataConfig& data = *config.run.mutable_data();
  const auto format = data::number_format(data);
  const float scale = format ? format->scale : found.scale;
  const bool pixels = scale == kPixelScale;
  const bool stored = pixels ? !takes_unit_pixels(found) : model.written_by_trireme;
  const NormalizeConfig normalize = normalize_config(found, (stored ? scale : 1) / found.scale);
  if (!data.has_normalize()) {
    *data.mutable_normalize() = normalize;
    return;
  }
  if (model.written_by_trireme) return require_same_normalization(normalize, file, config);
  if (nearly_equal(data.normalize(), normalize)) {
    config.warnings.push_back(fmt::format(
        "{} normalizes its input in the same way as data.normalize, which happens before", file));
  }
  const auto values = [](const google::protobuf::RepeatedField<float>& field, float unset) {
    return field.empty() ? std::vector<float>{unset} : std::vector(field.begin(), field.end());
  };
  const model::InputNormalization given{.mean = values(data.normalize().mean(), 0),
                                        .stddev = values(data.normalize().std(), 1)};
  try {
    const model::InputNormalization both = model::chained(given, found);
    *data.mutable_normalize() = normalize_config(both, 1 / both.scale);
  } catch (const Error& error) {
    throw ConfigError(config.where("data.normalize"),
                      fmt::format("does not fit {}: {}", file, error.what()));
  }
}

// Returns a pattern of model.freeze that matches this name only.
std::string quoted(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 && std::isalnum(byte) == 0 && c != '_') pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// Adds the names to model.freeze, many in one pattern, since each pattern is compared with all
// names of parameters.
void add_frozen(const std::vector<std::string>& names, ModelConfig& model) {
  constexpr size_t kNames = 100;
  for (size_t i = 0; i < names.size(); ++i) {
    if (i % kNames == 0) model.add_freeze();
    std::string& pattern = *model.mutable_freeze(model.freeze_size() - 1);
    pattern += (i % kNames == 0 ? "" : "|") + quoted(names[i]);
  }
}

// Returns whether the layer has a weight of its own that no other layer uses.
bool has_own_weight(const NetworkConfig& network, const LayerConfig& layer) {
  return !layer.shared().has_weight() &&
         std::ranges::none_of(network.layer(), [&](const LayerConfig& other) {
           return other.shared().weight() == layer.name() || other.shared().bias() == layer.name();
         });
}

// Unsets the units of a dense layer before the loss, so that the data determines them, unless they
// are those of another layer.
void unset_head_units(NetworkConfig& network) {
  if (network.layer_size() < 2) return;
  const LayerConfig& loss = network.layer(network.layer_size() - 1);
  for (LayerConfig& layer : *network.mutable_layer()) {
    const bool last = loss.input().empty() ? &layer == &network.layer(network.layer_size() - 2)
                                           : layer.name() == loss.input(0);
    if (!last || !layer.has_dense() || layer.dense().has_tied_to()) continue;
    if (!has_own_weight(network, layer)) continue;
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
  const auto format = data::number_format(config.run.data());
  if (format && format->regression) {
    network.mutable_layer(network.layer_size() - 1)->mutable_mean_squared_error();
  } else {
    unset_head_units(network);
  }
  ModelConfig& model = *config.run.mutable_model();
  *model.mutable_network() = std::move(network);
  if (!model.has_init_from()) model.set_init_from(file);
  add_frozen(found.frozen, model);
  for (const std::string& warning : found.warnings) {
    config.warnings.push_back(fmt::format("{}: {}", file, printable(warning)));
  }
  import_normalization(found, file, config);
}

}  // namespace trireme::train
