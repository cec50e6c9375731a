#include "trainer/config/config.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "core/text.h"
#include "data/files/lines.h"
#include "trainer/config/config_text.h"
#include "trainer/config/config_validate.h"
#include "trainer/config/deprecated_fields.h"
#include "trainer/config/find_config.h"
#include "trainer/config/import_model.h"

namespace trireme::train {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Sets unset scalar fields to their defaults, so that the saved configuration shows every value
// that was used.
void fill_defaults(Message& message) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < message.GetDescriptor()->field_count(); ++i) {
    const FieldDescriptor* field = message.GetDescriptor()->field(i);
    if (field->is_repeated()) continue;
    if (field->message_type()) {
      if (reflection.HasField(message, field))
        fill_defaults(*reflection.MutableMessage(&message, field));
      continue;
    }
    if (!field->has_default_value() || reflection.HasField(message, field)) continue;
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        reflection.SetInt32(&message, field, field->default_value_int32());
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        reflection.SetInt64(&message, field, field->default_value_int64());
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        reflection.SetUInt64(&message, field, field->default_value_uint64());
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        reflection.SetFloat(&message, field, field->default_value_float());
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        reflection.SetDouble(&message, field, field->default_value_double());
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        reflection.SetBool(&message, field, field->default_value_bool());
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        reflection.SetEnum(&message, field, field->default_value_enum());
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        reflection.SetString(&message, field, field->default_value_string());
        break;
      default:
        throw Error(fmt::format(
            "internal error: the default of {} cannot be set: its type is not supported",
            field->full_name()));
    }
  }
}

void complete(RunConfig& run) {
  if (!run.has_seed()) run.set_seed(run.seed());
  run.mutable_batch();
  if (run.optimizer().kind_case() == OptimizerConfig::KIND_NOT_SET) {
    run.mutable_optimizer()->mutable_sgd();
  }
  if (run.schedule().kind_case() == ScheduleConfig::KIND_NOT_SET) {
    run.mutable_schedule()->mutable_constant();
  }
  fill_defaults(*run.mutable_train());
  fill_defaults(*run.mutable_optimizer());
  fill_defaults(*run.mutable_schedule());
  fill_defaults(*run.mutable_checkpoint());
  fill_defaults(*run.mutable_buckets());
  fill_defaults(*run.mutable_checks());
  fill_defaults(*run.mutable_parallel());
}

// Removes the last component of a path: "a.b[2].c" -> "a.b[2]" -> "a.b" -> "a" -> "".
std::string parent(const std::string& path) {
  const size_t cut = path.find_last_of(".[");
  return cut == std::string::npos ? "" : path.substr(0, cut);
}

// Clears the fields that do not affect samples.
void clear_irrelevant_fields(DataConfig& data) {
  data.clear_root();  // the files may have been moved
  data.clear_threads();
  data.clear_prefetch();
  data.clear_on_bad_record();  // has no effect without bad records
  data.clear_max_bad_records();
  if (data.has_webdataset()) {
    data.mutable_webdataset()->clear_class_names();
    data.mutable_webdataset()->clear_index_folder();
  }
  // The size and place of the cache do not matter; its presence affects how images are decoded for
  // the first transform.
  if (data.has_cache()) data.mutable_cache()->Clear();
}

}  // namespace

std::string Config::where(const std::string& path) const {
  for (std::string known = path; !known.empty(); known = parent(known)) {
    const auto place = places.find(known);
    if (place != places.end()) return place->second + ": " + path;
  }
  const auto file = places.find("");
  return file == places.end() ? path : file->second + ": " + path;
}

ConfigError Config::located(const ConfigError& error) const {
  const std::string message = error.what();
  const std::string path = message.substr(0, message.find(':'));
  const std::string top = path.substr(0, path.find_first_of(".["));
  if (!RunConfig::descriptor()->FindFieldByName(top)) return error;
  const std::string place = where(path);
  return place == path ? error
                       : ConfigError(place.substr(0, place.size() - path.size() - 2), message);
}

Config parse_config(const std::string& text, const std::string& file,
                    std::span<const std::string> assignments) {
  Config config;
  const auto* root = RunConfig::descriptor();
  config.warnings = parse_text(text, file, config.run);
  config.places[""] = file;
  for (const FieldPlace& place : field_places(text, root)) {
    config.places.emplace(current_path(root, place.path), fmt::format("{}:{}", file, place.line));
  }
  for (const std::string& assignment : assignments) {
    std::ranges::move(assign(config.run, assignment), std::back_inserter(config.warnings));
    config.places[current_path(root, assignment.substr(0, assignment.find('=')))] = "--set";
  }
  import_model(config);
  complete(config.run);
  validate(config);
  return config;
}

Config load_config(const std::string& name, std::span<const std::string> assignments) {
  constexpr uintmax_t kMaxBytes = uintmax_t{64} << 20;
  const std::string path = find_config(name);
  std::error_code ignored;  // a missing file is reported below
  const std::filesystem::file_status status = std::filesystem::status(path, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    throw ConfigError(path,
                      std::filesystem::is_directory(status)
                          ? "is a folder, not a configuration; that of a run is its config.txtpb"
                          : "cannot be read: it is not a regular file");
  }
  if (std::filesystem::is_regular_file(status) &&
      std::filesystem::file_size(path, ignored) > kMaxBytes) {
    throw ConfigError(path, fmt::format("cannot be read: it is larger than {}",
                                        format_bytes(static_cast<double>(kMaxBytes))));
  }
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) {
    const std::string reason = std::strerror(errno);
    throw ConfigError(path, "cannot be read: " + reason + suggest_config(path));
  }
  return parse_config(std::string(data::without_byte_order_mark(text.view())), path, assignments);
}

std::string to_text(const RunConfig& config) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetUseShortRepeatedPrimitives(true);
  std::string text;
  if (!printer.PrintToString(config, &text)) throw Error("the configuration cannot be printed");
  return text;
}

std::string model_name(const RunConfig& config) {
  if (config.model().has_zoo()) return config.model().zoo().name();
  const std::string& name = config.model().network().name();
  return name.empty() ? "network" : name;
}

std::string config_hash(const RunConfig& config) {
  RunConfig essence;
  essence.set_seed(config.seed());
  *essence.mutable_model() = config.model();
  if (config.model().has_init_from()) {  // the file may have been moved
    essence.mutable_model()->set_init_from(
        std::filesystem::path(config.model().init_from()).filename().string());
  }
  *essence.mutable_data() = config.data();
  clear_irrelevant_fields(*essence.mutable_data());
  essence.mutable_batch()->set_global(config.batch().global());
  essence.mutable_train()->set_precision(config.train().precision());
  essence.mutable_train()->set_clip_norm(config.train().clip_norm());
  *essence.mutable_optimizer() = config.optimizer();
  *essence.mutable_schedule() = config.schedule();
  restore_deprecated_fields(essence);  // checkpoints of earlier versions have the same hash
  const std::string text = to_text(essence);
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace trireme::train
