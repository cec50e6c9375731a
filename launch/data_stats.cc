// `trireme data stats`: what the samples of a run are, counted and measured.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>

#include "core/device.h"
#include "core/text.h"
#include "data/loader.h"
#include "launch/cli.h"
#include "launch/data.h"
#include "launch/progress_bar.h"
#include "trainer/base/json.h"
#include "trainer/base/machine.h"
#include "trainer/config/inputs.h"

namespace trireme::cli {
namespace {

constexpr int64_t kBatch = 64;
constexpr size_t kFew = 20;  // classes or channels, which are all told

struct DataStatsOptions : DataOptions {
  int64_t samples = 0;  // 0: all
  bool json = false;
};

// Mean and squared deviations of numbers, which can be added to others' (Chan, Golub and LeVeque,
// "Updating formulae and a pairwise algorithm for computing sample variances", 1979).
struct Moments {
  double count = 0;
  double mean = 0;
  double squares = 0;

  void add(const Moments& other) {
    if (other.count == 0) return;
    const double both = count + other.count;
    const double apart = other.mean - mean;
    squares += other.squares + apart * apart * count * other.count / both;
    mean += apart * other.count / both;
    count = both;
  }
  double deviation() const { return count > 0 ? std::sqrt(squares / count) : 0; }
};

// Of `count` numbers, `step` apart.
template <class T>
Moments moments_of(const T* numbers, int64_t count, int64_t step) {
  Moments moments{.count = static_cast<double>(count)};
  for (int64_t i = 0; i < count; ++i) moments.mean += static_cast<double>(numbers[i * step]);
  moments.mean /= moments.count;
  for (int64_t i = 0; i < count; ++i) {
    const double apart = static_cast<double>(numbers[i * step]) - moments.mean;
    moments.squares += apart * apart;
  }
  return moments;
}

struct Statistics {
  int64_t read = 0;
  std::vector<Moments> inputs;   // of each channel, or feature
  std::vector<int64_t> classes;  // how often each is a label
  Moments targets;               // of regression
  std::map<std::string, int64_t> formats;
  std::vector<int> heights, widths;    // of images as stored
  std::map<int64_t, std::string> bad;  // by sample, what is wrong with it
};

// Measures what others read in the first epoch: so many samples, evenly from among all.
class Measured final : public data::WrappedDataset {
 public:
  Measured(std::unique_ptr<data::Dataset> dataset, int64_t samples)
      : data::WrappedDataset(std::move(dataset)),
        size_(samples > 0 ? std::min(samples, inner().size()) : inner().size()) {
    const data::SampleSpec& samples_are = spec();
    if (samples_are.input.dtype != DType::kI32) {
      statistics_.inputs.resize(samples_are.input.shape[0]);
    }
    statistics_.classes.resize(samples_are.classes);
  }

  int64_t size() const override { return size_; }
  std::string where(int64_t index) const override { return inner().where(of(index)); }
  // The loader goes on into epochs that are not looked at.
  void read(data::SampleId id, std::byte* input, std::byte* target) const override {
    if (id.epoch > 0) return;
    const int64_t index = of(id.index);
    try {
      inner().read({index, id.epoch}, input, target);
      add(input, target, inner().stored(index));
    } catch (const DataError& error) {
      const std::lock_guard lock(mutex_);
      statistics_.bad.emplace(id.index, error.what());
      throw;
    }
  }

  // Once all is read.
  const Statistics& statistics() const { return statistics_; }

 private:
  int64_t of(int64_t index) const {
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
    const TensorSpec& is = spec().input;
    const auto channels = static_cast<int64_t>(statistics_.inputs.size());
    const bool last = is.layout == Layout::channels_last();
    std::vector<Moments> moments;
    for (int64_t c = 0; c < channels; ++c) {
      const int64_t count = is.shape.elements() / channels;
      const int64_t first = last ? c : c * count;
      const int64_t step = last ? channels : 1;
      moments.push_back(
          is.dtype == DType::kU8
              ? moments_of(reinterpret_cast<const uint8_t*>(input) + first, count, step)
              : moments_of(reinterpret_cast<const float*>(input) + first, count, step));
    }
    return moments;
  }

  void add_target(const std::byte* target) const {
    const TensorSpec& is = spec().target;
    const int64_t count = is.shape.elements();
    const auto* labels = reinterpret_cast<const int32_t*>(target);
    const auto* numbers = reinterpret_cast<const float*>(target);
    if (is.dtype == DType::kI32) {
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
  std::vector<std::string> bad_named;
  double seconds = 0;
};

// Everything is read that can be, whatever data.on_bad_record says.
Result measure(const DataStatsOptions& options, train::Config config) {
  DataConfig& data = *config.run.mutable_data();
  data.set_on_bad_record(DataConfig::SKIP);
  data.set_max_bad_records(data::kAnyNumber);
  ProgressBar progress;
  const auto tell = [&](std::string_view text) { progress.show(text); };
  const Measured dataset(train::open_data(config, options.part, tell), options.samples);
  data::LoaderOptions loading;
  loading.order.shuffle = false;
  loading.global_batch = loading.capacity = kBatch;
  loading.threads = train::inspect_machine().cores;
  loading.depth = loading.threads + 2;
  loading.max_bad_records = data::kAnyNumber;
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
  for (const auto& [sample, what] : result.statistics.bad) result.bad_named.push_back(what);
  return result;
}

template <class T>
T median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// "3 to 17, median 5".
template <class T>
std::string range_text(const std::vector<T>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  if (*least == *most) return fmt::format("{}", *least);
  return fmt::format("{} to {}, median {}", *least, *most, median(values));
}

// Mean and deviation of each channel as data.normalize takes them; of all together where there are
// too many to tell.
struct Normal {
  std::vector<double> mean, deviation;

  Normal(const Result& result, size_t most) {
    std::vector<Moments> of = result.statistics.inputs;
    if (of.size() > most) {
      for (size_t i = 1; i < of.size(); ++i) of[0].add(of[i]);
      of.resize(1);
    }
    for (const Moments& moments : of) {
      mean.push_back(moments.mean * double{result.spec.scale});
      deviation.push_back(moments.deviation() * std::abs(double{result.spec.scale}));
    }
  }
  // What never changes is not to be divided by nothing.
  std::string line() const {
    std::vector<double> divisors = deviation;
    std::replace(divisors.begin(), divisors.end(), 0.0, 1.0);
    return fmt::format("normalize {{ mean: [{:.4g}] deviation: [{:.4g}] }}", fmt::join(mean, ", "),
                       fmt::join(divisors, ", "));
  }
};

void print_classes(const Result& result) {
  const std::vector<int64_t>& counts = result.statistics.classes;
  if (counts.empty()) {
    fmt::print("targets  mean {:.4g}, deviation {:.4g}\n", result.statistics.targets.mean,
               result.statistics.targets.deviation());
    return;
  }
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  fmt::print("classes  {}, each {}\n", counts.size(), range_text(counts));
  if (counts.size() > kFew) {
    const auto name = [&](auto place) { return class_text(result.names, place - counts.begin()); };
    fmt::print("         least often {}, most often {}\n", name(least), name(most));
    return;
  }
  for (size_t c = 0; c < counts.size(); ++c) {
    fmt::print("         {:>8}  {}\n", counts[c],
               class_text(result.names, static_cast<int64_t>(c)));
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

void print_inputs(const Result& result) {
  if (result.statistics.inputs.empty()) return;
  const Normal normal(result, kFew);
  const size_t channels = result.statistics.inputs.size();
  fmt::print("input    mean {:.4g}; deviation {:.4g}{}\n         {}\n",
             fmt::join(normal.mean, ", "), fmt::join(normal.deviation, ", "),
             channels > kFew ? fmt::format(" of all {} together", channels) : "", normal.line());
}

void print_text(const Result& result) {
  const Statistics& statistics = result.statistics;
  fmt::print("{}\n", result.description);
  fmt::print("read     {} samples in {}, {}/s\n", statistics.read, format_duration(result.seconds),
             format_count(static_cast<double>(statistics.read) / std::max(1e-9, result.seconds)));
  if (statistics.read > 0) {
    print_classes(result);
    print_images(statistics);
    print_inputs(result);
  }
  fmt::print("bad      {}\n", result.bad > 0 ? fmt::format("{} records", result.bad) : "none");
  for (const std::string& what : result.bad_named) fmt::print("         {}\n", what);
  const int64_t unnamed = result.bad - static_cast<int64_t>(result.bad_named.size());
  if (unnamed > 0) fmt::print("         and {} more\n", unnamed);
}

void print_json(const Result& result) {
  const Statistics& statistics = result.statistics;
  const Normal normal(result, SIZE_MAX);
  nlohmann::ordered_json json = {{"description", result.description},
                                 {"samples", statistics.read},
                                 {"seconds", result.seconds},
                                 {"input", result.spec.input.shape.to_string()},
                                 {"mean", normal.mean},
                                 {"deviation", normal.deviation},
                                 {"normalize", Normal(result, kFew).line()}};
  nlohmann::ordered_json classes = nlohmann::ordered_json::array();
  for (size_t c = 0; c < statistics.classes.size(); ++c) {
    classes.push_back({{"name", class_text(result.names, static_cast<int64_t>(c))},
                       {"count", statistics.classes[c]}});
  }
  json["classes"] = classes;
  if (!statistics.heights.empty()) {
    const auto range = [](const std::vector<int>& sides) {
      const auto [least, most] = std::minmax_element(sides.begin(), sides.end());
      return nlohmann::ordered_json{{"least", *least}, {"median", median(sides)}, {"most", *most}};
    };
    json["formats"] = statistics.formats;
    json["height"] = range(statistics.heights);
    json["width"] = range(statistics.widths);
  }
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
      data.add_command("stats", "Count and measure samples, name those that are damaged");
  options->add_to(command);
  command.add_option("--samples", options->samples, "So many from among all; unset: all of them")
      .positive();
  command.add_flag("--json", options->json, "One JSON object");
  command.epilog(R"(Examples:
  trireme data stats digits.txtpb

Exit codes: 0 done, 3 more records are damaged than the configuration allows.
)");
  command.on_chosen(
      [options, &chosen] { chosen.run = on_one_rank([options] { return stats(*options); }); });
}

}  // namespace trireme::cli
