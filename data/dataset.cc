#include "data/dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "core/error.h"
#include "data/formats/formats.h"

namespace trireme {
namespace {

void check(const DataConfig& config) {
  if (config.format_case() == DataConfig::FORMAT_NOT_SET) {
    throw ConfigError("data",
                      "names no format; give data.idx, data.cifar, data.csv or data.synthetic");
  }
  if (config.has_holdout()) {
    if (!(config.holdout() > 0 && config.holdout() < 1)) {
      throw ConfigError("data.holdout", fmt::format("{} is not in (0, 1)", config.holdout()));
    }
    if (config.has_synthetic()) {
      throw ConfigError("data.holdout",
                        "synthetic data has evaluation samples of its own; see "
                        "data.synthetic.eval_count");
    }
  }
  if (config.threads() < 0 || config.threads() > 256) {
    throw ConfigError("data.threads", fmt::format("{} is not in [0, 256]", config.threads()));
  }
  if (config.prefetch() < 1) {
    throw ConfigError("data.prefetch", fmt::format("{} is less than 1", config.prefetch()));
  }
  if (config.max_bad_records() < 0) {
    throw ConfigError("data.max_bad_records",
                      fmt::format("{} is less than 0", config.max_bad_records()));
  }
}

std::vector<float> per_channel(const google::protobuf::RepeatedField<float>& values, float unset,
                               const SampleSpec& spec, const std::string& path) {
  if (values.empty()) return {unset};
  const int64_t channels = spec.input.shape[0];
  if (values.size() != 1 && values.size() != channels) {
    throw ConfigError(path, fmt::format("has {} values; 1 or {} are needed, as samples are {}",
                                        values.size(), channels, spec.input.shape.to_string()));
  }
  for (const float value : values) {
    if (!std::isfinite(value)) throw ConfigError(path, fmt::format("{} is not a number", value));
  }
  return {values.begin(), values.end()};
}

void normalize(const NormalizeConfig& config, SampleSpec& spec) {
  spec.mean = per_channel(config.mean(), 0, spec, "data.normalize.mean");
  spec.deviation = per_channel(config.deviation(), 1, spec, "data.normalize.deviation");
  for (const float value : spec.deviation) {
    if (!(value > 0))
      throw ConfigError("data.normalize.deviation", fmt::format("{} is not above 0", value));
  }
}

Samples read_files(const DataConfig& config, Part part) {
  if (config.has_idx()) return read_idx(config, part);
  if (config.has_cifar()) return read_cifar(config, part);
  return read_csv(config, part);
}

Samples read_part(const DataConfig& config, Part part) {
  Samples samples = read_files(config, config.has_holdout() ? Part::kTraining : part);
  normalize(config.normalize(), samples.spec);
  if (!config.has_holdout()) return samples;
  return split_off(samples, config.holdout(), config.holdout_seed(), part);
}

}  // namespace

std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Part part) {
  check(config);
  if (!config.has_synthetic()) return make_dataset(read_part(config, part));
  SampleSpec spec = synthetic_spec(config.synthetic());
  normalize(config.normalize(), spec);
  return make_synthetic(config.synthetic(), part, std::move(spec));
}

void check_alike(const Dataset& training, const Dataset& evaluation) {
  const SampleSpec& a = training.spec();
  const SampleSpec& b = evaluation.spec();
  if (a.input == b.input && a.target == b.target && a.classes == b.classes) return;
  throw DataError(evaluation.description(),
                  "does not go with the training samples, " + training.description());
}

}  // namespace trireme
