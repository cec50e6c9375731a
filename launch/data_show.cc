// `trireme data show`: shows samples as the network receives them, as an HTML page of images or as
// text.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include "core/control_groups.h"
#include "core/device.h"
#include "core/file.h"
#include "core/text.h"
#include "data/images/codec.h"
#include "data/loader.h"
#include "data/sample_images.h"
#include "data/tokenizers/tokenizer.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/message.h"
#include "launch/output_file.h"
#include "launch/progress_bar.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"

namespace trireme::cli {
namespace {

struct DataShowOptions : DataOptions {
  std::string out;  // empty for samples.html
  int64_t samples = 64;
  int64_t epoch = 1;
  int columns = 0;  // 0 for as many as fit
  int zoom = 0;     // 0 to choose it from the size of the images
};

// The loaded samples, concatenated as in a batch.
struct Shown {
  data::SampleSpec spec;
  int64_t count = 0;
  std::vector<int64_t> numbers;  // in the dataset
  std::vector<std::byte> inputs;
  std::vector<std::byte> targets;
  int32_t padding = 0;  // the token that shortened samples are padded with

  void add(const data::Batch& batch, int64_t rows) {
    const size_t n = rows;
    if (batch.length > 0) {
      add_shortened(batch, rows);
    } else {
      inputs.insert(inputs.end(), batch.inputs, batch.inputs + n * spec.input.bytes());
    }
    targets.insert(targets.end(), batch.targets, batch.targets + n * spec.target.bytes());
    numbers.insert(numbers.end(), batch.samples, batch.samples + n);
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
  void add_shortened(const data::Batch& batch, int64_t rows) {
    const auto* tokens = reinterpret_cast<const int32_t*>(batch.inputs);
    std::vector<int32_t> sample(static_cast<size_t>(spec.input.shape[0]), padding);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(tokens + row * batch.length, batch.length, sample.begin());
      const auto bytes = std::as_bytes(std::span(sample));
      inputs.insert(inputs.end(), bytes.begin(), bytes.end());
    }
  }
  template <class T>
  static std::span<const T> of(const std::vector<std::byte>& all, const TensorSpec& spec,
                               int64_t row) {
    const size_t elements = spec.shape.elements();
    return {reinterpret_cast<const T*>(all.data()) + row * elements, elements};
  }
};

// Loads the first samples of the chosen training epoch, or the first evaluation samples.
Shown load(const DataShowOptions& options, const train::Config& config,
           const data::Dataset& dataset) {
  const DataConfig& data = config.run.data();
  const bool training = options.part == data::Part::kTraining;
  const std::unique_ptr<data::Mix> mix =
      training ? train::make_mix(config, dataset.spec()) : nullptr;
  data::LoaderOptions loading;
  loading.seed = config.run.seed();
  loading.order.shuffle = false;
  if (training) loading.order = train::training_order(config, dataset);
  // MixUp and CutMix combine pairs of samples, so the batch must have an even number of them. A
  // longer batch begins with the samples of a shorter one.
  loading.global_batch =
      std::min(config.run.batch().global(), options.samples + options.samples % 2);
  if (loading.order.streams > 0) loading.global_batch = loading.order.streams;
  loading.capacity = loading.global_batch;
  loading.threads = usable_cores();
  loading.mix = mix.get();
  loading.max_bad_records = data::bad_record_limit(data);
  const auto device = create_cpu_device(1);
  data::Loader loader(dataset, *device, loading);
  const int64_t epoch = training ? options.epoch - 1 : 0;
  loader.start(epoch, 0);
  Shown shown;
  shown.spec = dataset.spec();
  if (const auto tokenizer = dataset.tokenizer()) shown.padding = tokenizer->special().padding();
  for (bool more = true; more;) {
    const data::Batch& batch = loader.next();
    shown.add(batch, std::min(batch.rows, options.samples - shown.count));
    more = shown.count < options.samples && !batch.last_of_epoch;
  }
  return shown;
}

// Returns the classes of a soft label, the largest first: "cat 70%", "dog 30%".
std::vector<std::string> shares(std::span<const float> probabilities,
                                const std::vector<std::string>& names) {
  std::vector<int64_t> classes;
  for (size_t c = 0; c < probabilities.size(); ++c) {
    if (probabilities[c] >= 0.005F) classes.push_back(static_cast<int64_t>(c));
  }
  const auto share = [&](int64_t c) { return probabilities[c]; };
  std::stable_sort(classes.begin(), classes.end(),
                   [&](int64_t a, int64_t b) { return share(a) > share(b); });
  std::vector<std::string> texts;
  for (const int64_t c : classes) {
    const std::string name = class_text(names, c);
    texts.push_back(classes.size() == 1 ? name : fmt::format("{} {:.0f}%", name, 100 * share(c)));
  }
  return texts;
}

// Describes the target of a sample, in one or more lines.
std::vector<std::string> describe_target(const Shown& shown, int64_t row,
                                         const std::vector<std::string>& names) {
  if (shown.spec.target.dtype == DType::kI32) {
    return {class_text(names, shown.target<int32_t>(row)[0])};
  }
  const std::span<const float> numbers = shown.target<float>(row);
  if (shown.spec.classes > 0) return shares(numbers, names);
  return {fmt::format("{:.4g}", fmt::join(numbers, ", "))};
}

constexpr const char* kPageHead = R"(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy"
      content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<link rel="icon" href="data:,">
<style>
body { margin: 24px; font: 14px/1.4 system-ui, sans-serif; }
main { display: grid; gap: 20px 14px; }
figure { margin: 0; text-align: center; overflow-wrap: anywhere; }
figcaption { white-space: pre-line; }
small { opacity: 0.65; }
img { max-width: 100%; height: auto; }
</style>
)";

std::string html_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<' || c == '>' || c == '&' || c == '"') {
      out += fmt::format("&#{};", static_cast<int>(c));
    } else {
      out += c;
    }
  }
  return out;
}

// Returns the scale factor for all images. Small images are enlarged by an integer to at most 128
// pixels; images larger than 160 pixels are shrunk to 160.
double zoom_of(std::span<const data::Image> images, int zoom) {
  int side = 1;
  for (const data::Image& image : images) {
    side = std::max({side, image.view().height, image.view().width});
  }
  if (zoom > 0) return zoom;
  return side > 160 ? 160.0 / side : std::max(1, 128 / side);
}

// Returns the caption of a sample: its target, its index and the name of its record.
std::string caption_of(const Shown& shown, int64_t row, const data::Dataset& dataset,
                       const std::vector<std::string>& names) {
  const int64_t number = shown.numbers[row];
  const std::string where = dataset.where(number);
  return fmt::format(
      "{}\n<small title=\"{}\">sample {}: {}</small>",
      html_text(fmt::format("{}", fmt::join(describe_target(shown, row, names), "\n"))),
      html_text(where), number, html_text(where.substr(where.rfind('/') + 1)));
}

std::string sample_page(const DataShowOptions& options, const Shown& shown,
                        const data::Dataset& dataset) {
  const std::vector<data::Image> images = data::images_of(shown.spec.input, shown.inputs);
  const double zoom = zoom_of(images, options.zoom);
  const std::vector<std::string> names = dataset.class_names();
  const std::string title = html_text(dataset.description());
  std::string figures;
  int width = 96;  // of captions
  for (int64_t row = 0; row < shown.count; ++row) {
    const data::ImageView image = images[row].view();
    const auto zoomed = [&](int pixels) {
      return std::max(1, static_cast<int>(pixels * zoom + 0.5));
    };
    width = std::max(width, zoomed(image.width));
    figures += fmt::format(
        "<figure><img alt=\"\" width=\"{}\" height=\"{}\" src=\"data:image/png;base64,{}\">"
        "<figcaption>{}</figcaption></figure>\n",
        zoomed(image.width), zoomed(image.height), base64(data::encode_png(image)),
        caption_of(shown, row, dataset, names));
  }
  const std::string columns = options.columns > 0 ? std::to_string(options.columns) : "auto-fill";
  return fmt::format(
      "{}<title>{}</title>\n</head>\n<body>\n<p>{}</p>\n"
      "<main style=\"grid-template-columns: repeat({}, {}px); image-rendering: {}\">\n"
      "{}</main>\n</body>\n</html>\n",
      kPageHead, title, title, columns, width, zoom >= 1 ? "pixelated" : "auto", figures);
}

void write_samples(const DataShowOptions& options, const RunConfig& config, const Shown& shown,
                   const data::Dataset& dataset) {
  const int64_t channels = shown.spec.input.shape[0];
  if (channels != 1 && channels != 3) {
    fmt::print("showing only the first of {} channels\n", channels);
  }
  const std::string page = sample_page(options, shown, dataset);
  const std::string out = options.out.empty() ? "samples.html" : options.out;
  require_another_file(out, options.path);
  require_another_file(out, config);
  replace_durably(out, page);
  print_message("{}: {} samples, {}\n", out, shown.count,
                format_bytes(static_cast<double>(page.size())));
}

std::string text_of_tokens(std::span<const int32_t> tokens, const std::vector<std::string>& names,
                           const data::Tokenizer* tokenizer) {
  if (tokenizer && std::ranges::max(tokens) < tokenizer->vocab_size()) {
    return tokenizer->decode(tokens);
  }
  if (names.empty()) return fmt::format("{}", fmt::join(tokens, " "));
  std::string text;
  for (const int32_t token : tokens) text += class_text(names, token);
  return text;
}

// Returns the tokens of a sample before its padding, and at least one.
std::span<const int32_t> without_padding(const Shown& shown, int64_t row) {
  std::span<const int32_t> tokens = shown.input<int32_t>(row);
  while (tokens.size() > 1 && tokens.back() == shown.padding) {
    tokens = tokens.first(tokens.size() - 1);
  }
  return tokens;
}

void print_samples(const Shown& shown, const data::Dataset& dataset) {
  const std::vector<std::string> names = dataset.class_names();
  const bool tokens = shown.spec.input.dtype == DType::kI32;
  for (int64_t row = 0; row < shown.count; ++row) {
    if (tokens) {
      const bool labeled = !shown.spec.has_token_labels();
      fmt::print("--- sample {}{} ---\n{}\n", row + 1,
                 labeled ? ": " + describe_target(shown, row, names).front() : "",
                 labeled
                     ? text_of_tokens(without_padding(shown, row), {}, dataset.tokenizer().get())
                     : text_of_tokens(shown.input<int32_t>(row), names, dataset.tokenizer().get()));
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
  if (!options.out.empty() && std::filesystem::path(options.out).extension() != ".html") {
    throw ConfigError(options.out, "data show writes an HTML page; choose a name *.html");
  }
  const train::Config config = options.load();
  ProgressBar progress;
  const auto dataset =
      train::open_data(config, options.part, [&](std::string_view text) { progress.show(text); });
  const Shown shown = load(options, config, *dataset);
  progress.clear();
  print_message("{}\n", dataset->description());
  if (shown.count == 0) throw DataError(dataset->description(), "no sample could be read");
  if (shown.spec.input.shape.rank() == 3) {
    write_samples(options, config.run, shown, *dataset);
  } else if (!options.out.empty()) {
    throw ConfigError("--out", "only images are written to a file; omit it to print these samples");
  } else {
    print_samples(shown, *dataset);
  }
  return 0;
}

}  // namespace

void add_data_show(ArgumentParser data, Command& chosen) {
  auto options = std::make_shared<DataShowOptions>();
  ArgumentParser command = data.add_command(
      "show",
      "Show samples as the network will receive them\nImages are written to an HTML page; other "
      "samples are printed.");
  options->add_to(command);
  command.add_option("-o,--out", options->out,
                     "The self-contained HTML file to write (default: samples.html)");
  command.add_option("--samples", options->samples, "Number of samples (default: 64)")
      .between(1, 10000);
  command.add_option("--epoch", options->epoch, "Training epoch, counted from 1 (default: 1)")
      .positive();
  command.add_option("--columns", options->columns, "Images per row (default: as many as fit)")
      .between(1, 100);
  command
      .add_option("--zoom", options->zoom,
                  "Enlarge images N times (default: depends on their size)")
      .between(1, 64);
  command.epilog(R"(Examples:
  trireme data show digits.txtpb --out samples.html
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return show(*options); }); });
}

}  // namespace trireme::cli
