#include "trainer/checkpoint/checkpoint_state.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/error.h"
#include "trainer/base/json.h"
#include "trainer/config/monitor.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

constexpr int kStateFormat = 2;
constexpr int64_t kLastStep = 999'999'999'999'999'999;  // limited by the names of checkpoints
constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Reads and checks the fields of a JSON object. Errors name the path of the field.
class Fields {
 public:
  explicit Fields(const Json& object, std::string path = "")
      : object_(object), path_(std::move(path)) {
    if (!object_.is_object()) {
      throw Error(path_.empty() ? "it is not a JSON object" : path_ + " is not a JSON object");
    }
  }

  bool has(const char* name) const { return object_.contains(name); }

  const Json& at(const char* name) const {
    const auto found = object_.find(name);
    if (found == object_.end()) throw Error(full(name) + " is missing");
    return *found;
  }

  Fields object(const char* name) const { return Fields(at(name), full(name)); }

  template <class T>
  T integer(const char* name, T min, T max) const {
    const Json& value = at(name);
    try {
      if (const T number = integer_from<T>(value); number >= min && number <= max) return number;
    } catch (const Error&) {  // does not name the field
    }
    throw_out_of_range(name, "an integer", min, max);
  }

  double number(const char* name, double min, double max) const {
    const std::optional<double> number = as_number(at(name));
    if (!number || !(*number >= min && *number <= max))
      throw_out_of_range(name, "a number", min, max);
    return *number;
  }
  // Returns any number, including NaN.
  double number(const char* name) const {
    if (const std::optional<double> number = as_number(at(name))) return *number;
    throw Error(fmt::format("{} is {}, which is not a number", full(name), json_text(at(name))));
  }

  std::string text(const char* name) const {
    if (!at(name).is_string()) throw Error(full(name) + " is not a string");
    return at(name);
  }

  std::vector<std::string> strings(const char* name) const {
    const Json& list = at(name);
    if (!list.is_array() || !std::ranges::all_of(list, &Json::is_string)) {
      throw Error(full(name) + " is not a list of strings");
    }
    return list;
  }

  bool boolean(const char* name) const {
    if (!at(name).is_boolean()) throw Error(full(name) + " is neither true nor false");
    return at(name);
  }

  uint64_t hex(const char* name) const {
    const std::string digits = text(name);
    uint64_t value = 0;
    const char* end = digits.data() + digits.size();
    const auto [stop, error] = std::from_chars(digits.data(), end, value, 16);
    if (digits.size() != 16 || error != std::errc() || stop != end) {
      throw Error(fmt::format("{} is {}, which is not 16 hexadecimal digits", full(name),
                              json_text(at(name))));
    }
    return value;
  }

 private:
  std::string full(const char* name) const { return path_.empty() ? name : path_ + "." + name; }

  template <class T>
  [[noreturn]] void throw_out_of_range(const char* name, const char* kind, T min, T max) const {
    const std::string value = json_text(at(name));
    throw Error(
        fmt::format("{} is {}, which is not {} in [{}, {}]", full(name), value, kind, min, max));
  }

  const Json& object_;
  std::string path_;
};

Json fingerprint_to_json(const data::Fingerprint& fingerprint) {
  Json json = {{"samples", fingerprint.samples},
               {"classes", fingerprint.classes},
               {"inputs", fmt::format("{:016x}", fingerprint.checksums.inputs)},
               {"targets", fmt::format("{:016x}", fingerprint.checksums.targets)}};
  if (!fingerprint.columns.empty()) json["columns"] = fingerprint.columns;
  if (!fingerprint.tokenizer.empty()) json["tokenizer"] = fingerprint.tokenizer;
  return json;
}

data::Fingerprint fingerprint_from(const Fields& in) {
  data::Fingerprint fingerprint;
  fingerprint.samples = in.integer<int64_t>("samples", 1, kMax);
  fingerprint.classes = in.integer<int>("classes", 0, std::numeric_limits<int>::max());
  fingerprint.checksums = {.inputs = in.hex("inputs"), .targets = in.hex("targets")};
  if (in.has("columns")) fingerprint.columns = in.strings("columns");
  if (in.has("tokenizer")) fingerprint.tokenizer = in.text("tokenizer");
  return fingerprint;
}

// Returns nothing if the fingerprints are of another version, which cannot be compared.
std::optional<RunData> data_from(const Fields& in) {
  if (in.integer<int>("version", 1, std::numeric_limits<int>::max()) !=
      data::Fingerprint::kVersion) {
    return std::nullopt;
  }
  return RunData{fingerprint_from(in.object("training")),
                 fingerprint_from(in.object("evaluation"))};
}

ops::LossScale loss_scale_from(const Fields& in, int64_t step) {
  ops::LossScale scale;
  scale.scale = static_cast<float>(in.number("scale", 1, 1 << 24));
  scale.good_steps = in.integer<int32_t>("good_steps", 0, std::numeric_limits<int32_t>::max());
  scale.skipped = in.integer<int64_t>("skipped", 0, step);
  return scale;
}

std::string metric_from(const Fields& in) {
  const std::string name = in.text("metric");
  const std::vector<std::string> known = metric_names();
  if (std::ranges::find(known, name) != known.end()) return name;
  throw Error(fmt::format("metric is '{}', which is not one of {}", name, fmt::join(known, ", ")));
}

BestEvaluation best_from(const Fields& in, int64_t step) {
  return {metric_from(in), in.number("value"), in.integer<int64_t>("step", 0, step)};
}

EarlyStoppingState stopping_from(const Fields& in, int64_t step) {
  EarlyStoppingState stopping;
  stopping.metric = metric_from(in);
  if (in.has("best")) stopping.best = in.number("best");
  stopping.best_step = in.integer<int64_t>("best_step", 0, step);
  stopping.waited = in.integer<int64_t>("waited", 0, step + 1);
  stopping.counted_at = in.integer<int64_t>("counted_at", -1, step);
  return stopping;
}

// Format 1 is from before samples had weights.
void read_format_1(const Fields& in, CheckpointState& state) {
  state.epoch_weight = static_cast<double>(
      in.integer<int64_t>("epoch_samples", 0, state.position > 0 ? state.position : kMax));
  const bool accuracy = in.has("best_accuracy");
  if (!accuracy && !in.has("best_loss")) return;
  state.best = {accuracy ? "accuracy" : "loss",
                accuracy ? in.number("best_accuracy", 0, 1) : in.number("best_loss"),
                in.integer<int64_t>("best_step", 0, state.step)};
}

CheckpointState state_from(const Fields& in) {
  CheckpointState state;
  state.step = in.integer<int64_t>("step", 0, kLastStep);
  // Every epoch, even an incomplete one, takes at least one step.
  state.epoch = in.integer<int64_t>("epoch", 0, state.step);
  if (in.has("data")) state.data = data_from(in.object("data"));
  const bool within = state.epoch < state.step;
  const int64_t last = state.data ? state.data->training.samples - 1 : kMax;
  state.position = in.integer<int64_t>("position", 0, within ? last : 0);
  state.seed = in.integer<uint64_t>("seed", 0, std::numeric_limits<uint64_t>::max());
  if (in.has("config")) state.config = in.text("config");
  state.config_hash = in.text("config_hash");
  state.ranks = in.integer<int>("ranks", 1, std::numeric_limits<int>::max());
  state.epoch_loss_sum = in.number("epoch_loss_sum");
  if (in.has("epoch_samples")) {
    read_format_1(in, state);
  } else {
    state.epoch_weight = in.number("epoch_weight", 0, std::numeric_limits<double>::max());
    if (in.has("best")) state.best = best_from(in.object("best"), state.step);
    if (in.has("early_stopping")) {
      state.stopping = stopping_from(in.object("early_stopping"), state.step);
    }
  }
  if (in.has("evaluation_due")) state.evaluation_due = in.boolean("evaluation_due");
  if (in.has("loss_scale")) {
    state.loss_scale = loss_scale_from(in.object("loss_scale"), state.step);
  }
  return state;
}

void add_changes(const std::string& part, const data::Fingerprint& before,
                 const data::Fingerprint& now, std::vector<std::string>& lines) {
  const auto add = [&](const char* what, auto was, auto is) {
    if (was != is) lines.push_back(fmt::format("{} {}: {} -> {}", part, what, was, is));
  };
  const auto add_checksum = [&](const char* what, uint64_t was, uint64_t is) {
    add(what, fmt::format("checksum {:016x}", was), fmt::format("{:016x}", is));
  };
  add("samples", before.samples, now.samples);
  add("classes", before.classes, now.classes);
  // Checkpoints of older versions do not hold the columns.
  if (!before.columns.empty() && before.columns != now.columns) {
    add("columns", fmt::format("{}", fmt::join(before.columns, ", ")),
        now.columns.empty() ? "without a header" : fmt::format("{}", fmt::join(now.columns, ", ")));
  }
  if (before.tokenizer != now.tokenizer) {
    const auto or_none = [](const std::string& name) { return name.empty() ? "none" : name; };
    add("tokenizer", or_none(before.tokenizer), or_none(now.tokenizer));
  }
  // Then the checksums differ, too.
  if (before.samples != now.samples || before.tokenizer != now.tokenizer) return;
  if (before.checksums.inputs != now.checksums.inputs) {
    add_checksum("inputs", before.checksums.inputs, now.checksums.inputs);
  }
  if (before.checksums.targets != now.checksums.targets) {
    add_checksum("targets", before.checksums.targets, now.checksums.targets);
  }
}

}  // namespace

std::string to_json(const CheckpointState& state) {
  Json out = {{"format", kStateFormat},
              {"step", state.step},
              {"epoch", state.epoch},
              {"position", state.position},
              {"seed", state.seed},
              {"config", state.config},
              {"config_hash", state.config_hash},
              {"ranks", state.ranks},
              {"epoch_loss_sum", state.epoch_loss_sum},
              {"epoch_weight", state.epoch_weight}};
  if (state.best) {
    out["best"] = {
        {"metric", state.best->metric}, {"value", state.best->value}, {"step", state.best->step}};
  }
  if (state.stopping) {
    Json& stopping = out["early_stopping"] = {{"metric", state.stopping->metric},
                                              {"best_step", state.stopping->best_step},
                                              {"waited", state.stopping->waited},
                                              {"counted_at", state.stopping->counted_at}};
    if (state.stopping->best) stopping["best"] = *state.stopping->best;
  }
  if (state.evaluation_due) out["evaluation_due"] = true;
  if (state.loss_scale) {
    out["loss_scale"] = {{"scale", state.loss_scale->scale},
                         {"good_steps", state.loss_scale->good_steps},
                         {"skipped", state.loss_scale->skipped}};
  }
  if (state.data) {
    out["data"] = {{"version", data::Fingerprint::kVersion},
                   {"training", fingerprint_to_json(state.data->training)},
                   {"evaluation", fingerprint_to_json(state.data->evaluation)}};
  }
  return json_text(out, 2) + "\n";
}

CheckpointState state_from_json(const std::string& text, const std::string& file) try {
  const Json parsed = parse_json(text);
  const Fields fields(parsed);
  if (fields.has("format") &&
      fields.integer<int>("format", 1, std::numeric_limits<int>::max()) > kStateFormat) {
    throw newer_format_error(file, json_text(parsed["format"]), kStateFormat);
  }
  return state_from(fields);
} catch (const ConfigError&) {
  throw;
} catch (const Json::exception& error) {
  throw DataError(file, fmt::format("is damaged: {}", json_problem(error)));
} catch (const Error& error) {
  throw DataError(file, fmt::format("is damaged: {}", error.what()));
}

ConfigError newer_format_error(const std::string& file, const std::string& format, int newest) {
  return {file, fmt::format("was written by a newer Trireme, in format {}; this version reads "
                            "formats up to {}; use the newer version",
                            format, newest)};
}

std::vector<std::string> changes(const RunData& before, const RunData& now) {
  std::vector<std::string> lines;
  add_changes("training", before.training, now.training, lines);
  add_changes("evaluation", before.evaluation, now.evaluation, lines);
  return lines;
}

}  // namespace trireme::train
