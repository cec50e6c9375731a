#include "trainer/report/sample_info.h"

#include <fmt/format.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "core/error.h"
#include "core/file.h"
#include "trainer/base/json.h"
#include "trainer/config/config.h"
#include "trainer/config/inputs.h"
#include "trainer/config/run_folder.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

// The types of stored samples. No dataset has other types or blocked layouts.
constexpr std::array kTypes{DType::kU8, DType::kI32, DType::kF32};
constexpr std::string_view kChannelsLast = "channels_last";
constexpr std::string_view kRowMajor = "row_major";

Json to_json(const TensorSpec& spec) {
  return {{"dtype", name_of(spec.dtype)},
          {"shape", std::vector<int64_t>(spec.shape.begin(), spec.shape.end())},
          {"layout", spec.layout == Layout::channels_last() ? kChannelsLast : kRowMajor}};
}

DType type_named(const std::string& name) {
  for (const DType type : kTypes) {
    if (name_of(type) == name) return type;
  }
  throw Error(fmt::format("'{}' is not a data type of samples", name));
}

TensorSpec spec_from(const Json& json) {
  const auto extents = integers_from<int64_t>(json.at("shape"));
  constexpr int64_t kMaxElements = int64_t{1} << 31;
  int64_t elements = 1;
  for (const int64_t extent : extents) {
    if (extents.size() > 3 || extent < 1 || extent > kMaxElements / elements) {
      throw Error(fmt::format("{} is not a valid shape", json_text(json.at("shape"))));
    }
    elements *= extent;
  }
  const std::string layout = json.at("layout");
  if (layout != kChannelsLast && layout != kRowMajor) {
    throw Error(fmt::format("'{}' is not a layout of samples", layout));
  }
  return {type_named(json.at("dtype")), Shape(extents),
          layout == kChannelsLast ? Layout::channels_last() : Layout::row_major()};
}

// Reads one value for all channels, or one value per channel.
std::vector<float> per_channel(const Json& json, const TensorSpec& input) {
  const auto values = json.get<std::vector<float>>();
  const bool fits =
      values.size() == 1 || (input.shape.rank() > 0 && std::ssize(values) == input.shape[0]);
  if (!fits) {
    throw Error(fmt::format("{} values do not fit the input {}", values.size(), input.to_string()));
  }
  return values;
}

Json to_json(const data::TableColumns& columns) {
  return {{"count", columns.count}, {"names", columns.names}, {"labels", columns.labels}};
}

data::TableColumns columns_from(const Json& json, const data::SampleSpec& spec) {
  data::TableColumns columns{json.at("names").get<std::vector<std::string>>(),
                             integer_from<int64_t>(json.at("count")),
                             integers_from<int64_t>(json.at("labels"))};
  const int64_t features = spec.input.shape.elements();
  const auto is_column = [&](int64_t label) { return label >= 0 && label < columns.count; };
  const bool fits = columns.count == features + std::ssize(columns.labels) &&
                    std::ranges::all_of(columns.labels, is_column) &&
                    (columns.names.empty() || std::ssize(columns.names) == columns.count) &&
                    std::ssize(columns.features()) == features;
  if (!fits) {
    throw Error(fmt::format("the columns {} do not fit an input of {} features", json_text(json),
                            features));
  }
  return columns;
}

Json to_json(const data::Tokenizer& tokenizer) {
  std::string config;
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  const auto status =
      google::protobuf::util::MessageToJsonString(tokenizer.config(), &config, options);
  if (!status.ok()) throw Error("a tokenizer cannot be described: " + status.ToString());
  return {{"identity", tokenizer.identity()}, {"config", Json::parse(config)}};
}

std::shared_ptr<const data::Tokenizer> tokenizer_from(const Json& json, const RunFolder& run) {
  TokenizerConfig config;
  const auto status =
      google::protobuf::util::JsonStringToMessage(json_text(json.at("config")), &config);
  if (!status.ok()) throw Error("the tokenizer is invalid: " + status.ToString());
  auto tokenizer = data::open_tokenizer(config, run.tokenizer().string(), "tokenizer");
  const std::string trained = json.at("identity");
  if (tokenizer->identity() != trained) {
    throw DataError(run.tokenizer().string(),
                    fmt::format("is not the tokenizer that the run was trained with: it is {}, and "
                                "the run's was {}; restore the files",
                                tokenizer->identity(), trained));
  }
  return tokenizer;
}

SampleInfo info_from(const Json& json) {
  SampleInfo info;
  data::SampleSpec& spec = info.spec;
  spec.input = spec_from(json.at("input"));
  spec.target = spec_from(json.at("target"));
  spec.classes = integer_from<int>(json.at("classes"));
  if (json.contains("vocab_size")) spec.vocab_size = integer_from<int>(json["vocab_size"]);
  spec.scale = json.at("scale");
  spec.mean = per_channel(json.at("mean"), spec.input);
  spec.stddev = per_channel(json.at("deviation"), spec.input);
  info.class_names = json.at("class_names").get<std::vector<std::string>>();
  if (!info.class_names.empty() && spec.classes > 0 &&
      std::ssize(info.class_names) < spec.classes) {
    throw Error(
        fmt::format("has {} class names for {} classes", info.class_names.size(), spec.classes));
  }
  if (json.contains("columns")) info.columns = columns_from(json["columns"], spec);
  return info;
}

}  // namespace

SampleInfo sample_info_of(const data::Dataset& dataset) {
  return {dataset.spec(), dataset.class_names(), dataset.columns(), dataset.tokenizer()};
}

void write_sample_info(const std::filesystem::path& run_folder, const SampleInfo& info) {
  const data::SampleSpec& spec = info.spec;
  Json json = {{"input", to_json(spec.input)},
               {"target", to_json(spec.target)},
               {"classes", spec.classes},
               {"scale", spec.scale},
               {"mean", spec.mean},
               {"deviation", spec.stddev},
               {"class_names", info.class_names}};
  if (spec.vocab_size > 0) json["vocab_size"] = spec.vocab_size;
  if (info.columns.count > 0) json["columns"] = to_json(info.columns);
  if (info.tokenizer) {
    save_tokenizer(*info.tokenizer, RunFolder{run_folder}.tokenizer());
    json["tokenizer"] = to_json(*info.tokenizer);
  }
  replace_durably(RunFolder{run_folder}.samples(), json_text(std::move(json), 2) + "\n");
}

void use_run_tokenizer(const std::filesystem::path& run_folder, const SampleInfo& info,
                       DataConfig& config) {
  if (!info.tokenizer) return;
  const std::filesystem::path folder = std::filesystem::absolute(RunFolder{run_folder}.tokenizer());
  const auto within = [&](const std::string& name) { return (folder / name).string(); };
  TokenizerConfig own = info.tokenizer->config();
  if (own.has_bpe()) {
    own.mutable_bpe()->set_vocab(within(own.bpe().vocab()));
    own.mutable_bpe()->set_merges(within(own.bpe().merges()));
  } else if (own.has_wordpiece()) {
    own.mutable_wordpiece()->set_vocab(within(own.wordpiece().vocab()));
  } else {
    own.mutable_sentencepiece()->set_model(within(own.sentencepiece().model()));
  }
  if (config.has_labeled_text()) {
    config.set_root(folder.string());
    *config.mutable_labeled_text()->mutable_tokenizer() = own;
  }
  if (config.has_text()) *config.mutable_text()->mutable_tokenizer() = own;
  if (config.has_tokens()) *config.mutable_tokens()->mutable_tokenizer() = own;
}

SampleInfo read_sample_info(const std::filesystem::path& run_folder, const Config& config) {
  const std::filesystem::path path = RunFolder{run_folder}.samples();
  if (!std::filesystem::exists(path))
    return sample_info_of(*open_data(config, data::Part::kEvaluation));
  try {
    const Json json = parse_json(read_text(path));
    SampleInfo info = info_from(json);
    if (json.contains("tokenizer")) {
      info.tokenizer = tokenizer_from(json["tokenizer"], RunFolder{run_folder});
    }
    return info;
  } catch (const DataError&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw DataError(path.string(),
                    fmt::format("not a description of samples: {}", json_problem(error)));
  }
}

}  // namespace trireme::train
