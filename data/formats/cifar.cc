#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/installation.h"
#include "data/files/file.h"
#include "data/formats/formats.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr size_t kPixels = 3 * 32 * 32;

struct Variant {
  const char* name;
  const char* folder;  // top-level folder of the published archive
  size_t label_bytes;
  size_t label_at;
  int classes;
  std::vector<std::string> train_files;
  std::vector<std::string> eval_files;
};

Variant variant_of(const CifarConfig& config) {
  if (config.variant() == CifarConfig::CIFAR10) {
    return {"CIFAR-10",
            "cifar-10-batches-bin",
            1,
            0,
            10,
            {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin", "data_batch_4.bin",
             "data_batch_5.bin"},
            {"test_batch.bin"}};
  }
  const bool coarse = config.variant() == CifarConfig::CIFAR100_COARSE;
  return {coarse ? "CIFAR-100 (coarse)" : "CIFAR-100",
          "cifar-100-binary",
          2,
          coarse ? size_t{0} : size_t{1},
          coarse ? 20 : 100,
          {"train.bin"},
          {"test.bin"}};
}

void append(const File& file, const Variant& variant, BadRecordPolicy& policy,
            std::vector<uint8_t>& pixels, std::vector<int32_t>& labels) {
  const size_t record = variant.label_bytes + kPixels;
  const size_t size = file.bytes.size();
  if (size == 0) throw DataError(file.path, "is empty");
  if (size % record != 0) {
    const size_t other = record == kPixels + 1 ? kPixels + 2 : kPixels + 1;
    const std::string hint =
        size % other == 0 ? fmt::format(" (but of {}; is data.cifar.variant right?)", other) : "";
    policy.add(DataError(
        fmt::format("{}: record {}", file.path, size / record),
        fmt::format("is truncated: the file's {} bytes are not a multiple of {}, the size of a {} "
                    "record{}{}",
                    size, record, variant.name, hint,
                    file.damage.empty() ? "" : fmt::format(" ({})", file.damage))));
  } else if (!file.damage.empty()) {
    policy.add(DataError(file.path, file.damage));
  }
  for (size_t at = 0; at + record <= size; at += record) {
    const auto label = checked_label(file.bytes[at + variant.label_at], variant.classes, file.path,
                                     static_cast<int64_t>(at / record), "", policy);
    if (!label) continue;
    labels.push_back(*label);
    const auto begin = file.bytes.begin() + static_cast<std::ptrdiff_t>(at + variant.label_bytes);
    pixels.insert(pixels.end(), begin, begin + static_cast<std::ptrdiff_t>(kPixels));
  }
}

// Says how to get the files, or which format reads those that are there.
std::string hint_for(const DataConfig& config, bool downloadable) {
  std::error_code error;
  fs::directory_iterator entry(config.root().empty() ? "." : config.root(), error);
  for (; !error && entry != fs::directory_iterator(); entry.increment(error)) {
    if (entry->path().extension() == ".tar") return "; data.webdataset reads its *.tar files";
  }
  return downloadable ? "; " + script_command("get-data") + " downloads CIFAR-10" : "";
}

}  // namespace

Samples read_cifar(const DataConfig& config, Part part) {
  const CifarConfig& cifar = config.cifar();
  const Variant variant = variant_of(cifar);
  const bool training = part == Part::kTraining;
  const auto& configured = training ? cifar.train_file() : cifar.eval_file();
  const auto& defaults = training ? variant.train_files : variant.eval_files;
  const std::vector<std::string> names =
      configured.empty() ? defaults
                         : std::vector<std::string>(configured.begin(), configured.end());
  std::vector<uint8_t> pixels;
  std::vector<int32_t> labels;
  std::vector<std::string> paths;
  const bool downloadable = configured.empty() && cifar.variant() == CifarConfig::CIFAR10;
  const std::string hint = hint_for(config, downloadable);
  for (const std::string& name : names) {
    const std::vector<std::string> places{name, std::string(variant.folder) + "/" + name};
    paths.push_back(find_file(config.root(), places, hint));
  }
  BadRecordPolicy policy(bad_record_limit(config));
  for (const std::string& path : paths) {
    append(read_for(policy, path), variant, policy, pixels, labels);
  }
  Samples samples;
  interleave(pixels, 3, kPixels / 3);
  samples.spec.input = {DType::kU8, Shape{3, 32, 32}, Layout::channels_last()};
  samples.spec.target = label_spec();
  samples.spec.classes = variant.classes;
  samples.spec.scale = 1.0F / 255;
  samples.count = static_cast<int64_t>(labels.size());
  samples.inputs = std::move(pixels);
  samples.targets = label_bytes(labels);
  samples.source = fmt::format("{} {}", variant.name, fmt::join(paths, ", "));
  finalize(policy, samples);
  return samples;
}

}  // namespace trireme::data
