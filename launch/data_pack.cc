// `trireme data pack`: writes samples into WebDataset shards, and tokens into token files.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>

#include "core/control_groups.h"
#include "core/text.h"
#include "data/pack/pack_tokens.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/message.h"
#include "launch/progress_bar.h"
#include "trainer/run/stop_signals.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct DataPackOptions : DataOptions {
  data::PackOptions pack;
};

const char* name_of(data::Part part) { return part == data::Part::kTraining ? "train" : "eval"; }

// Returns the configuration for a folder of images: FOLDER/train/CLASS and FOLDER/val/CLASS, or
// FOLDER/CLASS.
DataConfig config_of_folder(const std::string& folder) {
  DataConfig config;
  config.set_root(folder);
  ImageFolderConfig& images = *config.mutable_image_folder();
  const auto holds = [&](const std::string& part) {
    return fs::is_directory(fs::path(folder) / part);
  };
  if (!holds(images.train()) && !holds(images.eval())) {
    images.set_train(".");
    images.set_eval(".");
  }
  return config;
}

DataConfig config_of(const DataPackOptions& options) {
  if (!fs::is_directory(options.path)) return options.load().run.data();
  if (options.assignments.empty()) return config_of_folder(options.path);
  throw ConfigError("--set", "requires a configuration file; " + options.path + " is a folder");
}

// What has been packed.
struct Packed {
  data::PackState state;
  double seconds;  // that packing took
  data::BadRecords bad_at_opening;
  const char* unit;       // what the numbers in `state` count
  const char* format;     // the field of `data` that reads the shards
  const char* extension;  // of the shards
  std::string fields;     // of the format that are the same for both parts
};

bool has_tokens(const DataConfig& config) { return config.has_text() || config.has_tokens(); }

Packed pack_samples(const DataConfig& config, const DataPackOptions& options) {
  data::OpenOptions opening;
  opening.progress = options.pack.note;
  const auto source = data::open_pack_source(config, options.part, options.pack.images, opening);
  std::string fields = fmt::format("    classes: {}\n", source->classes());
  if (!source->class_names().empty()) fields += "    class_names: \"classes.txt\"\n";
  const auto began = std::chrono::steady_clock::now();
  data::PackState state = pack(*source, options.pack);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  return {.state = std::move(state),
          .seconds = seconds.count(),
          .bad_at_opening = source->bad_records(),
          .unit = "samples",
          .format = "webdataset",
          .extension = "tar",
          .fields = fields};
}

Packed pack_tokens(const DataConfig& config, const DataPackOptions& options) {
  const data::PackOptions& pack = options.pack;
  const auto refuse = [](const char* option) {
    throw ConfigError(option, "cannot be used for text and tokens, which are packed as they are");
  };
  if (pack.samples) refuse("--samples");
  if (pack.images.resize > 0) refuse("--resize");
  if (pack.shuffle) refuse("--shuffle");
  const auto source = data::open_pack_tokens(config, options.part);
  const bool text = config.has_text();
  std::string fields =
      fmt::format("    length: {}\n", text ? config.text().length() : config.tokens().length());
  if (text ? config.text().random_offset() : config.tokens().random_offset()) {
    fields += "    random_offset: true\n";
  }
  if (source->tokenizer()) {
    fields +=
        fmt::format("    tokenizer {{ {} }}\n", source->tokenizer()->config().ShortDebugString());
  } else if (!source->names().empty()) {
    fields += "    vocab_file: \"vocab.txt\"\n";
  } else {
    fields += fmt::format("    vocab_size: {}\n", source->vocab_size());
  }
  return {.state = data::pack_tokens(*source, pack),
          .seconds = 0,
          .bad_at_opening = source->bad_records(),
          .unit = "tokens",
          .format = "tokens",
          .extension = "bin",
          .fields = fields};
}

// Returns the `data` section of a configuration that reads the shards, of both parts if both have
// been packed.
std::string snippet(const Packed& packed, const DataConfig& config, const std::string& folder) {
  std::string text = fmt::format("data {{\n  root: \"{}\"\n  {} {{\n", folder, packed.format);
  for (const data::Part part : {data::Part::kTraining, data::Part::kEvaluation}) {
    const std::string path = data::pack_state_path(folder, name_of(part));
    const std::optional<data::PackState> state = data::read_pack_state(path);
    if (!state || !state->done) continue;
    text += fmt::format("    {}: \"{}\"\n", name_of(part),
                        data::shard_pattern(name_of(part), state->shards.size(), packed.extension));
  }
  text += packed.fields + "  }\n";
  if (config.has_holdout() && !config.has_text()) {
    text += fmt::format("  holdout: {}\n", config.holdout());
    if (config.has_holdout_seed()) {
      text += fmt::format("  holdout_seed: {}\n", config.holdout_seed());
    }
    if (config.holdout_stratified()) text += "  holdout_stratified: true\n";
  }
  if (!config.decode().apply_exif_orientation()) {
    text += "  decode { apply_exif_orientation: false }\n";
  }
  if (!config.decode().apply_exif_orientation()) {
    text += "  decode { apply_exif_orientation: false }\n";
  }
  return text + "}\n";
}

// Also prints the time that packing so many records took, unless it is 0.
void print_result(const Packed& packed, int64_t records) {
  const data::PackState& state = packed.state;
  uint64_t bytes = 0;
  for (const data::PackedShard& shard : state.shards) bytes += shard.bytes;
  fmt::print("{} {} in {} shard{}, {}", state.samples(), packed.unit, state.shards.size(),
             state.shards.size() == 1 ? "" : "s", format_bytes(static_cast<double>(bytes)));
  if (records > 0) {
    fmt::print("; {} records in {}, {}/s", records, format_duration(packed.seconds),
               format_count(static_cast<double>(records) / packed.seconds));
  }
  fmt::print("\n");
  const data::BadRecords packing = state.bad();
  const data::BadRecords& at_opening = packed.bad_at_opening;
  const int64_t count = at_opening.count + packing.count;
  if (count == 0) return;
  fmt::print("{} bad records skipped:\n", count);
  for (const data::BadRecords& bad : {at_opening, packing}) {
    for (const std::string& what : bad.first) print_message("  {}\n", what);
  }
  const auto named = static_cast<int64_t>(at_opening.first.size() + packing.first.size());
  if (count > named) fmt::print("  and {} more\n", count - named);
}

int run(DataPackOptions options) {
  const train::StopSignals stop;
  const DataConfig config = config_of(options);
  ProgressBar progress;
  data::PackOptions& pack_options = options.pack;
  pack_options.name = name_of(options.part);
  pack_options.bad_limit = data::bad_record_limit(config);
  if (pack_options.threads == 0) pack_options.threads = usable_cores();
  pack_options.note = [&](std::string_view text) { progress.show(text); };
  pack_options.stop = [&] { return stop.requested(); };
  pack_options.images.apply_exif_orientation = config.decode().apply_exif_orientation();
  const bool tokens = has_tokens(config);
  int64_t records = 0;
  pack_options.progress = [&](int64_t done, int64_t total) {
    ++records;
    progress.show(done, total, tokens ? "tokens" : "samples");
  };
  const Packed packed = tokens ? pack_tokens(config, options) : pack_samples(config, options);
  progress.clear();
  print_result(packed, tokens ? 0 : records);
  if (!packed.state.done) {
    fmt::print("stopped; run the same command again to continue\n");
    return static_cast<int>(ExitCode::kResumable);
  }
  print_message("\n{}", snippet(packed, config, pack_options.folder));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_data_pack(ArgumentParser data, Command& chosen) {
  auto options = std::make_shared<DataPackOptions>();
  data::PackOptions& pack = options->pack;
  ArgumentParser command = data.add_command(
      "pack",
      "Write samples into WebDataset shards, or tokens into token files\nIf "
      "interrupted, run it again to continue. CONFIG may also be a folder that has "
      "one subfolder of images per class. Text and tokens become files that "
      "data.tokens reads.");
  command.epilog(R"(Examples:
  trireme data pack digits.txtpb shards
  trireme data pack images shards --resize 256
  trireme data pack shakespeare.txtpb tokens
  trireme data pack shakespeare.txtpb tokens --part eval

Exit codes: 0 done, 75 stopped by a signal (run it again to continue).
)");
  options->add_to(command);
  command.add_option("OUT", pack.folder, "Folder to write the shards to").required();
  command
      .add_option("--shard-size", pack.shard_bytes,
                  "Maximum size of a shard, in bytes or with a unit (default: 256MiB)")
      .bytes()
      .positive()
      .metavar("SIZE");
  command.add_option("--samples", pack.samples, "Pack only the first N samples (default: all)")
      .positive();
  command
      .add_option("--resize", pack.images.resize,
                  "Shrink images whose shorter side is longer than N pixels to N, and store them "
                  "as JPEG, upright (default: copy the files unchanged)")
      .between(1, 65500);
  command.add_option("--quality", pack.images.quality, "JPEG quality (default: 95)")
      .between(1, 100);
  command
      .add_option("--shuffle", pack.shuffle,
                  "Shuffle the samples with this random seed (default: keep their order)")
      .metavar("SEED");
  command.add_option("--threads", pack.threads, "Number of threads (default: one per core)")
      .positive();
  pack.threads = 0;
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return run(*options); }); });
}

}  // namespace trireme::cli
