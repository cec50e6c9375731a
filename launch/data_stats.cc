// `trireme data stats`: computes statistics of the samples of a run.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>

#include "core/control_groups.h"
#include "core/device.h"
#include "core/text.h"
#include "data/classes.h"
#include "data/loader.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/median.h"
#include "launch/message.h"
#include "launch/progress_bar.h"
#include "trainer/base/json.h"
#include "trainer/config/inputs.h"
#include "trainer/config/loading.h"

namespace trireme::cli {
namespace {

constexpr int64_t kBatch = 64;
constexpr size_t kMaxListed = 20;    // classes or channels that are listed individually
constexpr size_t kMaxPasted = 1000;  // channels of which the text for the configuration is printed

struct DataStatsOptions : DataOptions {
  int64_t samples = 0;  // 0: all
  bool json = false;
};

// Mean and sum of squared deviations of a set of numbers. Sets can be merged (Chan, Golub and
// LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;

  void add(const Moments& other) {
    if (other.count == 0) return;
    const double both = count + other.count;
    const double delta = other.mean - mean;
    squares += other.squares + delta * delta * count * other.count / both;
    mean += delta * other.count / both;
    count = both;
  }
  double stddev() const { return count > 0 ? std::sqrt(squares / count) : 0; }
};

// Returns the moments of `count` numbers with the given stride.
template <class T>
Moments moments_of(const T* numbers, int64_t count, int64_t stride) {
  Moments moments{.count = static_cast<double>(count)};
  for (int64_t i = 0; i < count; ++i) moments.mean += static_cast<double>(numbers[i * stride]);
  moments.mean /= moments.count;
  for (int64_t i = 0; i < count; ++i) {
    const double delta = static_cast<double>(numbers[i * stride]) - moments.mean;
    moments.squares += delta * delta;
  }
  return moments;
}

struct Statistics {
  int64_t read = 0;
  std::vector<Moments> inputs;   // of each channel or feature
  std::vector<int64_t> classes;  // number of samples of each class
  Moments targets;               // for regression
  std::map<std::string, int64_t> formats;
  std::vector<int> heights, widths;    // of the images as stored
  std::map<int64_t, std::string> bad;  // error messages by sample
};

// A dataset of `samples` samples, spread evenly over another dataset (0 for all). Computes the
// statistics of the samples that are read in the first epoch.
class MeasuringDataset final : public data::WrappedDataset {
 public:
  MeasuringDataset(std::unique_ptr<data::Dataset> dataset, int64_t samples)
      : data::WrappedDataset(std::move(dataset)),
        size_(samples > 0 ? std::min(samples, inner().size()) : inner().size()) {
    const data::SampleSpec& sample = spec();
    if (sample.input.dtype != DType::kI32) {
      statistics_.inputs.resize(sample.input.shape[0]);
    }
    statistics_.classes.resize(sample.classes);
  }

  int64_t size() const override { return size_; }
  std::string where(int64_t index) const override { return inner().where(inner_index(index)); }
  // Ignores epochs after the first, which the loader prefetches.
  void read(data::SampleId id, std::byte* input, std::byte* target) const override {
    if (id.epoch > 0) return;
    const int64_t index = inner_index(id.index);
    try {
      inner().read({index, id.epoch}, input, target);
      add(input, target, inner().stored_image(index));
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex_);
      statistics_.bad.emplace(id.index, error.what());
      throw;
    }
  }

  // Call after all samples have been read.
  const Statistics& statistics() const { return statistics_; }

 private:
  int64_t inner_index(int64_t index) const {
    return static_cast<int64_t>(static_cast<__int128>(index) * inner().size() / size_);
  }

  void add(const std::byte* input, const std::byte* target,
           const std::optional<data::ImageInfo>& image) const {
    const std::vector<Moments> inputs = moments_of_input(input);
    const std::lock_guard lock(mutex_);
    ++statistics_.read;
    for (size_t i = 0; i < inputs.size(); ++i) statistics_.inputs[i].add(inputs[i]);
    add_target(target);
    if (!image) return;
    ++statistics_.formats[image->format];
    statistics_.heights.push_back(image->size.height);
    statistics_.widths.push_back(image->size.width);
  }

  std::vector<Moments> moments_of_input(const std::byte* input) const {
    const TensorSpec& tensor = spec().input;
    const auto channels = static_cast<int64_t>(statistics_.inputs.size());
    const bool channels_last = tensor.layout == Layout::channels_last();
    std::vector<Moments> moments;
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t count = tensor.shape.elements() / channels;
      const int64_t first = channels_last ? c : c * count;
      const int64_t stride = channels_last ? channels : 1;
      moments.push_back(
          tensor.dtype == DType::kU8
              ? moments_of(reinterpret_cast<const uint8_t*>(input) + first, count, stride)
              : moments_of(reinterpret_cast<const float*>(input) + first, count, stride));
    }
    return moments;
  }

  void add_target(const std::byte* target) const {
    const TensorSpec& tensor = spec().target;
    const int64_t count = tensor.shape.elements();
    const auto* labels = reinterpret_cast<const int32_t*>(target);
    const auto* numbers = reinterpret_cast<const float*>(target);
    if (tensor.dtype == DType::kI32) {
      for (int64_t i = 0; i < count; ++i) ++statistics_.classes[labels[i]];
    } else if (spec().classes > 0) {
      ++statistics_.classes[std::max_element(numbers, numbers + count) - numbers];
    } else {
      statistics_.targets.add(moments_of(numbers, count, 1));
    }
  }

  const int64_t size_;
  mutable std::mutex mutex_;
  mutable Statistics statistics_;
};

struct Result {
  std::string description;
  data::SampleSpec spec;
  std::vector<std::string> names;
  Statistics statistics;
  int64_t bad = 0;
  std::vector<std::string> bad_named;  // messages of some or all of them
  double seconds = 0;
  std::vector<int32_t> lengths = {};       // of texts, in tokens
  std::string batches = {};                // see train::padding_text
  std::vector<std::string> warnings = {};  // of classes
};

// Returns what is probably wrong with the classes. Which of them have samples is known only if all
// samples were read.
std::vector<std::string> class_warnings(const DataStatsOptions& options, const Result& result) {
  if (result.spec.classes < 1 || result.spec.has_token_labels()) return {};
  std::vector<std::string> lines{data::similar_classes(result.names)};
  if (options.samples == 0) {
    const bool training = options.part == data::Part::kTraining;
    lines.push_back(data::empty_classes(result.statistics.classes, result.names,
                                        training ? "training" : "evaluation"));
  }
  std::erase(lines, "");
  return lines;
}

// Reads all samples and skips bad ones, regardless of data.on_bad_record.
Result measure(const DataStatsOptions& options, train::Config config) {
  DataConfig& data = *config.run.mutable_data();
  data.set_on_bad_record(DataConfig::SKIP);
  data.set_max_bad_records(data::kUnlimitedBadRecords);
  ProgressBar progress;
  const auto show = [&](std::string_view text) { progress.show(text); };
  const MeasuringDataset dataset(train::open_data(config, options.part, show), options.samples);
  data::LoaderOptions loading;
  loading.order.shuffle = false;
  loading.global_batch = loading.capacity = kBatch;
  loading.threads = usable_cores();
  loading.depth = loading.threads + 2;
  loading.max_bad_records = data::kUnlimitedBadRecords;
  const auto device = create_cpu_device(1);
  const auto began = std::chrono::steady_clock::now();
  data::Loader loader(dataset, *device, loading);
  loader.start(0, 0);
  for (bool more = true; more;) {
    const data::Batch& batch = loader.next();
    progress.show(batch.position + batch.global_rows, dataset.size(), "samples");
    more = !batch.last_of_epoch;
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began;
  const data::BadRecords opened = dataset.bad_records();
  Result result{.description = dataset.description(),
                .spec = dataset.spec(),
                .names = dataset.class_names(),
                .statistics = dataset.statistics(),
                .bad = opened.count + static_cast<int64_t>(dataset.statistics().bad.size()),
                .bad_named = opened.first,
                .seconds = seconds.count()};
  result.lengths = dataset.lengths();
  if (options.part == data::Part::kTraining && data.has_length_buckets()) {
    result.batches = train::padding_text(config, train::training_order(config, dataset));
  }
  for (const auto& [sample, what] : result.statistics.bad) result.bad_named.push_back(what);
  result.warnings = class_warnings(options, result);
  return result;
}

// "3 to 17, median 5".
template <class T>
std::string range_text(const std::vector<T>& values) {
  const auto [min, max] = std::minmax_element(values.begin(), values.end());
  if (*min == *max) return fmt::format("{}", *min);
  return fmt::format("{} to {}, median {}", *min, *max, median(values));
}

// Returns whether more than two thirds of the samples could be read, so that their statistics are
// those of the data: of images of several sizes, only those of the size of the first can be.
bool has_statistics(const Result& result) {
  return result.statistics.read > 2 * static_cast<int64_t>(result.statistics.bad.size());
}

// Returns the numbers separated by commas, in lines if they are many.
std::string in_lines(const std::vector<std::string>& numbers) {
  constexpr size_t kLine = 90;
  std::string text, line;
  for (const std::string& number : numbers) {
    if (!line.empty()) line += ",";
    if (line.size() + number.size() > kLine) {
      text += line + "\n  ";
      line = number;
    } else {
      line += (line.empty() ? "" : " ") + number;
    }
  }
  return text + line;
}

// Mean and standard deviation of each channel, or of all with `single`, as data.normalize takes
// them.
struct ChannelStats {
  std::vector<double> mean, stddev;

  ChannelStats(const Result& result, bool single) {
    std::vector<Moments> channels = result.statistics.inputs;
    if (single) {
      for (size_t i = 1; i < channels.size(); ++i) channels[0].add(channels[i]);
      channels.resize(1);
    }
    for (const Moments& moments : channels) {
      mean.push_back(moments.mean * double{result.spec.scale});
      stddev.push_back(moments.stddev() * std::abs(double{result.spec.scale}));
    }
  }
  // Returns the configuration text in lines of 100 characters. Constant channels are divided by 1
  // instead of 0. Means much larger than their std have more digits, as many as FP32 has.
  std::string text() const {
    std::vector<std::string> means, divisors;
    for (size_t i = 0; i < mean.size(); ++i) {
      const double divisor = stddev[i] > 0 ? stddev[i] : 1;
      const int more = static_cast<int>(std::ceil(std::log10(std::abs(mean[i]) / divisor + 1)));
      means.push_back(fmt::format("{:.{}g}", mean[i], std::clamp(4 + more - 1, 4, 9)));
      divisors.push_back(fmt::format("{:.4g}", divisor));
    }
    return fmt::format("normalize {{ mean: [{}] std: [{}] }}", in_lines(means), in_lines(divisors));
  }
};

// Returns whether the inputs have a single mean and std although they have many channels: bytes,
// such as flattened images.
bool has_single_value(const Result& result) {
  return result.spec.input.dtype == DType::kU8 && result.statistics.inputs.size() > kMaxListed;
}

void print_classes(const Result& result) {
  const std::vector<int64_t>& counts = result.statistics.classes;
  if (counts.empty()) {
    fmt::print("targets  mean {:.4g}, std {:.4g}\n", result.statistics.targets.mean,
               result.statistics.targets.stddev());
    return;
  }
  const auto [min, max] = std::minmax_element(counts.begin(), counts.end());
  fmt::print("classes  {}, samples per class {}\n", counts.size(), range_text(counts));
  if (counts.size() > kMaxListed) {
    const auto name = [&](auto place) {
      return printable(class_text(result.names, place - counts.begin()));
    };
    fmt::print("         min for '{}', max for '{}'\n", name(min), name(max));
    return;
  }
  for (size_t c = 0; c < counts.size(); ++c) {
    fmt::print("         {:>8}  {}\n", counts[c],
               printable(class_text(result.names, static_cast<int64_t>(c))));
  }
}

void print_images(const Statistics& statistics) {
  if (statistics.heights.empty()) return;
  std::vector<std::string> formats;
  for (const auto& [format, count] : statistics.formats) {
    formats.push_back(fmt::format("{} {}", format, count));
  }
  fmt::print("files    {}\n         height {}; width {}\n", fmt::join(formats, ", "),
             range_text(statistics.heights), range_text(statistics.widths));
}

void print_lengths(const Result& result) {
  if (result.lengths.empty()) return;
  fmt::print("tokens   {}\n", range_text(result.lengths));
  if (!result.batches.empty()) fmt::print("batches  {}\n", result.batches);
}

void print_inputs(const Result& result) {
  const Statistics& statistics = result.statistics;
  if (statistics.inputs.empty()) return;
  if (!has_statistics(result)) {
    fmt::print("input    no mean and std, since only {} of {} samples could be read\n",
               statistics.read, statistics.read + std::ssize(statistics.bad));
    return;
  }
  const ChannelStats channels(result, has_single_value(result));
  const size_t count = statistics.inputs.size();
  if (count <= kMaxListed || has_single_value(result)) {
    fmt::print(
        "input    mean {:.4g}; std {:.4g}{}\n         {}\n", fmt::join(channels.mean, ", "),
        fmt::join(channels.stddev, ", "),
        count > 1 && channels.mean.size() == 1 ? fmt::format(" over all {} channels", count) : "",
        channels.text());
    return;
  }
  const auto [min_mean, max_mean] = std::ranges::minmax(channels.mean);
  const auto [min_std, max_std] = std::ranges::minmax(channels.stddev);
  fmt::print("input    {} channels, mean {:.4g} to {:.4g}, std {:.4g} to {:.4g}\n", count, min_mean,
             max_mean, min_std, max_std);
  if (count <= kMaxPasted) {
    fmt::print("{}\n", channels.text());
  } else {
    fmt::print("         `--json` prints `normalize` with the numbers of each channel\n");
  }
}

void print_text(const Result& result) {
  const Statistics& statistics = result.statistics;
  print_message("{}\n", result.description);
  fmt::print("read     {} samples in {}, {}/s\n", statistics.read, format_duration(result.seconds),
             format_count(static_cast<double>(statistics.read) / std::max(1e-9, result.seconds)));
  if (statistics.read > 0) {
    print_classes(result);
    for (const std::string& warning : result.warnings) fmt::print("warning  {}\n", warning);
    print_images(statistics);
    print_lengths(result);
    print_inputs(result);
  }
  fmt::print("bad      {}\n", result.bad > 0 ? fmt::format("{} records", result.bad) : "none");
  for (const std::string& what : result.bad_named) print_message("         {}\n", what);
  const int64_t unnamed = result.bad - static_cast<int64_t>(result.bad_named.size());
  if (unnamed > 0) fmt::print("         and {} more\n", unnamed);
}

void print_json(const Result& result) {
  const Statistics& statistics = result.statistics;
  nlohmann::ordered_json json = {{"description", result.description},
                                 {"samples", statistics.read},
                                 {"seconds", result.seconds},
                                 {"input", result.spec.input.shape.to_string()}};
  for (const char* name : {"mean", "std", "normalize"}) json[name] = nullptr;
  if (!statistics.inputs.empty() && has_statistics(result)) {
    const ChannelStats channels(result, false);
    json["mean"] = channels.mean;
    json["std"] = channels.stddev;
    json["normalize"] = ChannelStats(result, has_single_value(result)).text();
  }
  nlohmann::ordered_json classes = nlohmann::ordered_json::array();
  for (size_t c = 0; c < statistics.classes.size(); ++c) {
    classes.push_back({{"name", class_text(result.names, static_cast<int64_t>(c))},
                       {"count", statistics.classes[c]}});
  }
  json["classes"] = classes;
  json["warnings"] = result.warnings;
  if (!statistics.heights.empty()) {
    const auto range = [](const std::vector<int>& sides) {
      const auto [min, max] = std::minmax_element(sides.begin(), sides.end());
      return nlohmann::ordered_json{{"min", *min}, {"median", median(sides)}, {"max", *max}};
    };
    json["formats"] = statistics.formats;
    json["height"] = range(statistics.heights);
    json["width"] = range(statistics.widths);
  }
  if (!result.lengths.empty()) {
    const auto [min, max] = std::ranges::minmax(result.lengths);
    json["tokens"] = {{"min", min}, {"median", median(result.lengths)}, {"max", max}};
  }
  if (!result.batches.empty()) json["batches"] = result.batches;
  json["bad_records"] = {{"count", result.bad}, {"named", result.bad_named}};
  fmt::print("{}\n", train::json_text(json));
}

int stats(const DataStatsOptions& options) {
  const train::Config config = options.load();
  const Result result = measure(options, config);
  options.json ? print_json(result) : print_text(result);
  const int64_t allowed = data::bad_record_limit(config.run.data()).value_or(0);
  return static_cast<int>(result.bad > allowed ? ExitCode::kBadData : ExitCode::kDone);
}

}  // namespace

void add_data_stats(ArgumentParser data, Command& chosen) {
  auto options = std::make_shared<DataStatsOptions>();
  ArgumentParser command =
      data.add_command("stats", "Print statistics of the samples and find bad ones");
  options->add_to(command);
  command
      .add_option("--samples", options->samples,
                  "Read only N samples, spread evenly over the data (default: all)")
      .positive();
  command.add_flag("--json", options->json, "Print the results as one JSON object");
  command.epilog(R"(Examples:
  trireme data stats digits.txtpb

Exit codes: 0 done, 3 there are more bad records than the configuration allows.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return stats(*options); }); });
}

}  // namespace trireme::cli
