// `trireme data show`: samples as the network gets them, as a picture or as text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>

#include "core/device.h"
#include "data/contact_sheet.h"
#include "data/images/codec.h"
#include "data/loader.h"
#include "data/sample_pictures.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/progress_bar.h"
#include "trainer/base/machine.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"

namespace trireme {
namespace {

struct DataShowOptions : DataOptions {
  std::string out = "sheet.png";
  int64_t samples = 64;
  int64_t epoch = 1;
  SheetStyle style;
};

// Samples one after the other, as a batch holds them.
struct Shown {
  SampleSpec spec;
  int64_t count = 0;
  std::vector<std::byte> inputs;
  std::vector<std::byte> targets;

  void add(const Batch& batch, int64_t rows) {
    const auto n = static_cast<size_t>(rows);
    inputs.insert(inputs.end(), batch.inputs, batch.inputs + n * spec.input.bytes());
    targets.insert(targets.end(), batch.targets, batch.targets + n * spec.target.bytes());
    count += rows;
  }
  template <class T>
  std::span<const T> input(int64_t row) const {
    return of<T>(inputs, spec.input, row);
  }
  template <class T>
  std::span<const T> target(int64_t row) const {
    return of<T>(targets, spec.target, row);
  }

 private:
  template <class T>
  static std::span<const T> of(const std::vector<std::byte>& all, const TensorSpec& spec,
                               int64_t row) {
    const auto elements = static_cast<size_t>(spec.shape.elements());
    return {reinterpret_cast<const T*>(all.data()) + static_cast<size_t>(row) * elements, elements};
  }
};

// Of training what comes first in the epoch, of evaluation what always does.
Shown load(const DataShowOptions& options, const Config& config, const Dataset& dataset) {
  const DataConfig& data = config.run.data();
  const bool training = options.part == Part::kTraining;
  const std::unique_ptr<Mix> mix = training ? make_mix(config, dataset.spec()) : nullptr;
  LoaderOptions loading;
  loading.seed = config.run.seed();
  loading.order = order_options(data);
  if (!training) loading.order.shuffle = false;
  // Samples are mixed in pairs: those of a longer batch begin with those of a shorter one.
  loading.global_batch =
      std::min(config.run.batch().global(), options.samples + options.samples % 2);
  loading.capacity = loading.global_batch;
  loading.threads = inspect_machine().cores;
  loading.mix = mix.get();
  loading.max_bad_records = bad_record_limit(data);
  const auto device = create_cpu_device(1);
  Loader loader(dataset, *device, loading);
  const int64_t epoch = training ? options.epoch - 1 : 0;
  loader.start(epoch, 0);
  Shown shown;
  shown.spec = dataset.spec();
  for (bool more = true; more;) {
    const Batch& batch = loader.next();
    shown.add(batch, std::min(batch.rows, options.samples - shown.count));
    more = shown.count < options.samples && !batch.last_of_epoch;
  }
  return shown;
}

// Classes with their share, the largest first: "cat 70%", "dog 30%".
std::vector<std::string> shares(std::span<const float> probabilities,
                                const std::vector<std::string>& names) {
  std::vector<int64_t> classes;
  for (size_t c = 0; c < probabilities.size(); ++c) {
    if (probabilities[c] >= 0.005F) classes.push_back(static_cast<int64_t>(c));
  }
  const auto share = [&](int64_t c) { return probabilities[static_cast<size_t>(c)]; };
  std::stable_sort(classes.begin(), classes.end(),
                   [&](int64_t a, int64_t b) { return share(a) > share(b); });
  std::vector<std::string> texts;
  for (const int64_t c : classes) {
    const std::string name = class_text(names, c);
    texts.push_back(classes.size() == 1 ? name : fmt::format("{} {:.0f}%", name, 100 * share(c)));
  }
  return texts;
}

// What is wanted of a sample, in one line or more.
std::vector<std::string> describe_target(const Shown& shown, int64_t row,
                                         const std::vector<std::string>& names) {
  if (shown.spec.target.dtype == DType::kI32) {
    return {class_text(names, shown.target<int32_t>(row)[0])};
  }
  const std::span<const float> numbers = shown.target<float>(row);
  if (shown.spec.classes > 0) return shares(numbers, names);
  return {fmt::format("{:.4g}", fmt::join(numbers, ", "))};
}

void write(const std::string& path, std::span<const uint8_t> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) throw Error(fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
}

void write_sheet(const DataShowOptions& options, const Shown& shown,
                 const std::vector<std::string>& names) {
  const std::vector<Image> images = pictures_of(shown.spec.input, shown.inputs);
  std::vector<SheetPicture> pictures;
  for (int64_t row = 0; row < shown.count; ++row) {
    pictures.push_back({images[static_cast<size_t>(row)].view(),
                        fmt::format("{}", fmt::join(describe_target(shown, row, names), "\n"))});
  }
  const int64_t channels = shown.spec.input.shape[0];
  if (channels != 1 && channels != 3) fmt::print("of {} channels the first is shown\n", channels);
  const Image sheet = contact_sheet(pictures, options.style);
  write(options.out, encode_png(sheet.view()));
  fmt::print("{}: {} samples, {} x {} pixels\n", options.out, shown.count, sheet.view().width,
             sheet.view().height);
}

std::string text_of_tokens(std::span<const int32_t> tokens, const std::vector<std::string>& names) {
  if (names.empty()) return fmt::format("{}", fmt::join(tokens, " "));
  std::string text;
  for (const int32_t token : tokens) text += class_text(names, token);
  return text;
}

void print_samples(const Shown& shown, const std::vector<std::string>& names) {
  const bool tokens = shown.spec.input.dtype == DType::kI32;
  for (int64_t row = 0; row < shown.count; ++row) {
    if (tokens) {
      fmt::print("--- sample {} ---\n{}\n", row + 1,
                 text_of_tokens(shown.input<int32_t>(row), names));
      continue;
    }
    const std::string target =
        fmt::format("{}", fmt::join(describe_target(shown, row, names), ", "));
    if (shown.spec.input.dtype == DType::kU8) {
      fmt::print("{}: {}\n", target, fmt::join(shown.input<uint8_t>(row), " "));
    } else {
      fmt::print("{}: {:.5g}\n", target, fmt::join(shown.input<float>(row), " "));
    }
  }
}

int show(const DataShowOptions& options) {
  const Config config = options.load();
  ProgressBar progress;
  const auto dataset =
      open_data(config, options.part, [&](std::string_view text) { progress.show(text); });
  const Shown shown = load(options, config, *dataset);
  progress.clear();
  const std::vector<std::string> names = dataset->class_names();
  fmt::print("{}\n", dataset->description());
  if (shown.count == 0) throw DataError(dataset->description(), "no sample could be read");
  if (shown.spec.input.shape.rank() == 3) {
    write_sheet(options, shown, names);
  } else {
    print_samples(shown, names);
  }
  return 0;
}

}  // namespace

void add_data_show(ArgumentParser data, Command& chosen) {
  auto options = std::make_shared<DataShowOptions>();
  ArgumentParser command = data.add_command(
      "show", "Draw samples as the network will get them\nWhat is no picture is printed.");
  options->add_to(command);
  command.add_option("--out", options->out, "The picture to write (PNG); unset: sheet.png");
  command.add_option("--samples", options->samples, "How many; unset: 64").between(1, 10000);
  command.add_option("--epoch", options->epoch, "Of which epoch, from 1; unset: 1").positive();
  command.add_option("--columns", options->style.columns, "Pictures in a row; unset: 8")
      .between(1, 100);
  command.add_option("--zoom", options->style.zoom, "Enlarge by this; unset: as suits their size")
      .between(1, 64);
  command.epilog(R"(Examples:
  trireme data show digits.txtpb --out sheet.png
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return show(*options); }); });
}

}  // namespace trireme
