#include "launch/input_description.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <google/protobuf/util/json_util.h>

#include "core/error.h"
#include "core/text.h"
#include "trainer/base/json.h"

namespace trireme::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

const char* name_of(InputRange range, bool pixels) {
  if (range == InputRange::kNormalized) return "normalized";
  if (range == InputRange::kUnit) return "0..1";
  return pixels ? "0..255" : "raw";
}

const char* layout_of(const data::SampleSpec& spec) {
  if (spec.input.shape.rank() == 3) return "NCHW";
  return spec.input.dtype == DType::kI32 ? "NT" : "NF";
}

// Returns the channels of an image: "RGB", "gray", or "" if they are not colors.
std::string channels_of(const data::SampleSpec& spec) {
  if (!are_pixels(spec) || spec.input.shape.rank() != 3) return "";
  if (spec.input.shape[0] == 3) return "RGB";
  return spec.input.shape[0] == 1 ? "gray" : "";
}

std::string normalization(const data::SampleSpec& spec, InputRange range) {
  const double unit = range == InputRange::kUnit ? 255 : 1;
  const OrderedJson json = {
      {"applied_by", range == InputRange::kNormalized ? "caller" : "model"},
      {"scale", static_cast<double>(static_cast<float>(double{spec.scale} * unit))},
      {"mean", spec.mean},
      {"std", spec.stddev}};
  return train::json_text(json);
}

// Makes the default interpolation explicit.
TransformConfig resolved(TransformConfig transform) {
  if (transform.has_resize()) {
    transform.mutable_resize()->set_interpolation(transform.resize().interpolation());
  }
  return transform;
}

std::string transforms_json(const DataConfig& data) {
  OrderedJson all = OrderedJson::array();
  for (const TransformConfig& transform : data.eval_transform()) {
    google::protobuf::util::JsonPrintOptions options;
    options.preserve_proto_field_names = true;
    std::string text;
    const auto status =
        google::protobuf::util::MessageToJsonString(resolved(transform), &text, options);
    if (!status.ok()) throw Error("data.eval_transform: " + status.ToString());
    all.push_back(OrderedJson::parse(text));
  }
  return train::json_text(all);
}

std::string numbers_text(const std::vector<float>& values) {
  return fmt::format("{:.4g}{}", fmt::join(values.begin(), values.begin() + 1, ""),
                     values.size() > 1 ? ", ..." : "");
}

std::vector<std::string> feature_names(const data::TableColumns& columns) {
  std::vector<std::string> names;
  if (columns.names.empty()) return names;
  for (const int64_t column : columns.features()) {
    names.push_back(columns.names[column]);
  }
  return names;
}

std::string range_text(const data::SampleSpec& spec, InputRange range) {
  const bool pixels = are_pixels(spec);
  if (range == InputRange::kStored) {
    return pixels ? "pixels from 0 to 255, not divided by 255" : "numbers as in the data";
  }
  if (range == InputRange::kUnit) return "pixels from 0 to 1";
  return fmt::format("(x * {:.6g} - mean) / std of {}, with mean {} and std {}", spec.scale,
                     pixels ? "pixels x from 0 to 255" : "numbers x as in the data",
                     numbers_text(spec.mean), numbers_text(spec.stddev));
}

void add_classes(const train::SampleInfo& samples, InputDescription& description) {
  if (samples.class_names.empty()) return;
  description.metadata.emplace_back("classes", train::json_text(OrderedJson(samples.class_names)));
}

}  // namespace

bool are_pixels(const data::SampleSpec& spec) { return spec.input.dtype == DType::kU8; }

InputDescription describe_input(const train::SampleInfo& samples, const DataConfig& data,
                                InputRange range) {
  const data::SampleSpec& spec = samples.spec;
  const bool pixels = are_pixels(spec);
  InputDescription description;
  auto& metadata = description.metadata;
  if (spec.input.dtype == DType::kI32) {
    const int64_t vocab_size = spec.vocab_size > 0 ? spec.vocab_size : spec.classes;
    metadata.emplace_back("input.range", "tokens");
    metadata.emplace_back("input.layout", layout_of(spec));
    metadata.emplace_back("input.vocab_size", std::to_string(vocab_size));
    description.text = fmt::format("token ids from 0 to {}", vocab_size - 1);
    add_classes(samples, description);
    return description;
  }
  metadata.emplace_back("input.range", name_of(range, pixels));
  metadata.emplace_back("input.layout", layout_of(spec));
  description.text = range_text(spec, range);
  const std::string channels = channels_of(spec);
  if (!channels.empty()) {
    metadata.emplace_back("input.channels", channels);
    description.text += fmt::format(", {}, channels first (NCHW)", channels);
  }
  metadata.emplace_back("input.normalization", normalization(spec, range));
  if (data.eval_transform_size() > 0) {
    metadata.emplace_back("input.transforms", transforms_json(data));
    for (const TransformConfig& transform : data.eval_transform()) {
      description.transforms +=
          (description.transforms.empty() ? "" : " then ") + resolved(transform).ShortDebugString();
    }
  }
  if (const auto names = feature_names(samples.columns); !names.empty()) {
    metadata.emplace_back("input.columns", train::json_text(OrderedJson(names)));
    description.text += ", columns " + printable(fmt::format("{}", fmt::join(names, ", ")));
  }
  // Keys defined by ONNX, see https://github.com/onnx/onnx/blob/main/docs/MetadataProps.md.
  if (!channels.empty()) {
    metadata.emplace_back("Image.BitmapPixelFormat", channels == "RGB" ? "Rgb8" : "Gray8");
    metadata.emplace_back("Image.ColorSpaceGamma", "SRGB");
    if (range != InputRange::kNormalized) {
      metadata.emplace_back("Image.NominalPixelRange",
                            range == InputRange::kUnit ? "Normalized_0_1" : "NominalRange_0_255");
    }
  }
  add_classes(samples, description);
  return description;
}

}  // namespace trireme::cli
