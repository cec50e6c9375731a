// `trireme data pack`: writes samples into WebDataset shards.
#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include "core/text.h"
#include "data/pack/pack.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/progress_bar.h"
#include "trainer/base/machine.h"
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

// Returns the `data` section of a configuration that reads the shards, of both parts if both have
// been packed.
std::string snippet(const data::PackSource& source, const DataConfig& config,
                    const std::string& folder) {
  std::string text = fmt::format("data {{\n  root: \"{}\"\n  webdataset {{\n", folder);
  for (const data::Part part : {data::Part::kTraining, data::Part::kEvaluation}) {
    const fs::path path = fs::path(folder) / fmt::format("{}.pack.json", name_of(part));
    const std::optional<data::PackState> state = data::read_pack_state(path.string());
    if (!state || !state->done) continue;
    text += fmt::format("    {}: \"{}\"\n", name_of(part),
                        data::shard_pattern(name_of(part), state->shards.size()));
  }
  text += fmt::format("    classes: {}\n", source.classes());
  if (!source.class_names().empty()) text += "    class_names: \"classes.txt\"\n";
  text += "  }\n";
  if (config.has_holdout()) text += fmt::format("  holdout: {}\n", config.holdout());
  return text + "}\n";
}

void print_result(const data::PackState& state, const data::BadRecords& at_opening, double seconds,
                  int64_t records) {
  uint64_t bytes = 0;
  for (const data::PackedShard& shard : state.shards) bytes += shard.bytes;
  fmt::print("{} samples in {} shard{}, {}", state.samples(), state.shards.size(),
             state.shards.size() == 1 ? "" : "s", format_bytes(static_cast<double>(bytes)));
  if (records > 0) {
    fmt::print("; {} records in {}, {}/s", records, format_duration(seconds),
               format_count(static_cast<double>(records) / seconds));
  }
  fmt::print("\n");
  const data::BadRecords packing = state.bad();
  const int64_t count = at_opening.count + packing.count;
  if (count == 0) return;
  fmt::print("{} bad records skipped:\n", count);
  for (const data::BadRecords& bad : {at_opening, packing}) {
    for (const std::string& what : bad.first) fmt::print("  {}\n", what);
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
  if (pack_options.threads == 0) pack_options.threads = train::inspect_machine().cores;
  pack_options.note = [&](std::string_view text) { progress.show(text); };
  pack_options.stop = [&] { return stop.requested(); };
  int64_t records = 0;
  pack_options.progress = [&](int64_t done, int64_t total) {
    ++records;
    progress.show(done, total, "samples");
  };
  data::OpenOptions opening;
  opening.progress = pack_options.note;
  const auto source = data::open_pack_source(config, options.part, pack_options.images, opening);
  const auto began = std::chrono::steady_clock::now();
  const data::PackState state = pack(*source, pack_options);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  progress.clear();
  print_result(state, source->bad_records(), seconds.count(), records);
  if (!state.done) {
    fmt::print("stopped; run the same command again to continue\n");
    return static_cast<int>(ExitCode::kResumable);
  }
  fmt::print("\n{}", snippet(*source, config, pack_options.folder));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void add_data_pack(ArgumentParser data, Command& chosen) {
  auto options = std::make_shared<DataPackOptions>();
  data::PackOptions& pack = options->pack;
  ArgumentParser command =
      data.add_command("pack",
                       "Write samples into WebDataset shards\nIf interrupted, run it again to "
                       "continue. CONFIG may also be a folder that has one subfolder of images "
                       "per class.");
  command.epilog(R"(Examples:
  trireme data pack digits.txtpb shards
  trireme data pack images shards --resize 256

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
                  "as JPEG (default: copy the files unchanged)")
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
