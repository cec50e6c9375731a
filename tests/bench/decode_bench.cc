// Measures the cost of turning photographs into 224 x 224 pixels, compared with a full decode of
// the same files by libjpeg-turbo: processor time of one thread, alternating.
//   decode_bench [FOLDER OF TAR FILES] [ROUNDS]
// Prints one JSON object: images/s of libjpeg, and the speed of each method relative to it, as
// medians over the rounds.
#include <archive.h>
#include <archive_entry.h>
#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "data/images/codec.h"
#include "data/images/libjpeg.h"
#include "data/images/resize.h"
#include "data/transforms/draws.h"
#include "tests/bench/measure.h"

namespace trireme {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr data::ImageSize kOutput{224, 224};

// Reads all JPEG members.
void read_tar(const std::filesystem::path& path, std::vector<Bytes>& files) {
  archive* tar = archive_read_new();
  archive_read_support_format_tar(tar);
  if (archive_read_open_filename(tar, path.c_str(), 1 << 20) != ARCHIVE_OK) {
    throw Error(archive_error_string(tar));
  }
  for (archive_entry* entry; archive_read_next_header(tar, &entry) == ARCHIVE_OK;) {
    if (!std::string(archive_entry_pathname(entry)).ends_with(".jpg")) continue;
    Bytes bytes(static_cast<size_t>(archive_entry_size(entry)));
    if (archive_read_data(tar, bytes.data(), bytes.size()) != std::ssize(bytes)) {
      throw Error(path.string() + " cannot be read");
    }
    files.push_back(std::move(bytes));
  }
  archive_read_free(tar);
}

std::vector<Bytes> read_folder(const std::string& folder) {
  std::vector<Bytes> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".tar") read_tar(entry.path(), files);
  }
  if (files.empty()) throw Error("no photographs in " + folder);
  return files;
}

// The usual method to decode with libjpeg, row by row. Errors end the program.
class PlainLibjpeg {
 public:
  PlainLibjpeg() {
    decoder_.err = jpeg_std_error(&errors_);
    jpeg_create_decompress(&decoder_);
  }
  ~PlainLibjpeg() { jpeg_destroy_decompress(&decoder_); }
  PlainLibjpeg(const PlainLibjpeg&) = delete;
  PlainLibjpeg& operator=(const PlainLibjpeg&) = delete;

  void decode(const Bytes& bytes) {
    jpeg_mem_src(&decoder_, bytes.data(), bytes.size());
    jpeg_read_header(&decoder_, TRUE);
    decoder_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&decoder_);
    const data::ImageView to = image_.reshape(
        {static_cast<int>(decoder_.output_height), static_cast<int>(decoder_.output_width)}, 3);
    while (decoder_.output_scanline < decoder_.output_height) {
      JSAMPROW row = to.row(static_cast<int>(decoder_.output_scanline));
      jpeg_read_scanlines(&decoder_, &row, 1);
    }
    jpeg_finish_decompress(&decoder_);
  }

 private:
  jpeg_error_mgr errors_{};
  jpeg_decompress_struct decoder_{};
  data::Image image_;
};

// Draws a crop as in training: 8% to 100% of the area, with an aspect ratio from 3:4 to 4:3.
data::Region random_crop(data::ImageSize full, data::Draws draws) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double area = full.height * full.width * double{draws.uniform(0.08f, 1)};
    const double ratio = std::exp(double{draws.uniform(std::log(0.75f), std::log(4 / 3.0f))});
    const int height = static_cast<int>(std::lround(std::sqrt(area / ratio)));
    const int width = static_cast<int>(std::lround(std::sqrt(area * ratio)));
    if (height < 1 || width < 1 || height > full.height || width > full.width) continue;
    return {draws.below(full.height - height + 1), draws.below(full.width - width + 1), height,
            width};
  }
  return {0, 0, full.height, full.width};
}

// What is done with an image.
enum class Method {
  kLibjpeg,     // decoded by libjpeg
  kDecode,      // decoded by Decoder
  kResize,      // decoded in full by Decoder, then a crop is resized
  kCrop,        // only the crop is decoded and resized
  kCropShrunk,  // only the crop is decoded, at reduced size, and resized
};
constexpr size_t kMethods = 5;

class Cropper {
 public:
  void decode(const Bytes& bytes) {
    const data::ImageSize full = decoder_.open(bytes).size;
    read({3, {0, 0, full.height, full.width}, 1});
  }

  void decode_and_resize(const Bytes& bytes, Method method, data::Draws draws) {
    const data::ImageSize full = decoder_.open(bytes).size;
    const data::Region crop = random_crop(full, draws);
    const data::Region wanted =
        method == Method::kResize ? data::Region{0, 0, full.height, full.width} : crop;
    const int shrink = method == Method::kCropShrunk ? shrink_for(crop) : 1;
    const data::Region covers = read({3, wanted, shrink});
    const data::Box box{double(crop.top - covers.top) / shrink,
                        double(crop.left - covers.left) / shrink, double(crop.height) / shrink,
                        double(crop.width) / shrink};
    resizer_.resize(image_.view(), box, output_.reshape(kOutput, 3), data::Filter::kBilinear);
  }

 private:
  // Returns the largest factor for which the crop is at least as large as the output.
  static int shrink_for(const data::Region& crop) {
    int shrink = 1;
    while (shrink < 8 && crop.height >= 2 * shrink * kOutput.height &&
           crop.width >= 2 * shrink * kOutput.width) {
      shrink *= 2;
    }
    return shrink;
  }

  // Decodes and returns the region that was decoded.
  data::Region read(const data::DecodeRequest& request) {
    const data::DecodePlan plan = decoder_.plan(request);
    decoder_.decode(image_.reshape(plan.size, 3));
    return plan.covers;
  }

  data::Decoder decoder_;
  data::Resizer resizer_;
  data::Image image_;
  data::Image output_;
};

double thread_seconds() {
  timespec used{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

template <class Work>
double seconds_of(Work work) {
  const double start = thread_seconds();
  work();
  return thread_seconds() - start;
}

// Returns the seconds that each method takes for all files, for each round. The methods alternate
// every few files: alternating at every file, they would warm caches and branch predictors for each
// other.
std::vector<std::array<double, kMethods>> measure(const std::vector<Bytes>& files, int rounds) {
  constexpr size_t kGroup = 25;
  PlainLibjpeg libjpeg;
  Cropper cropper;
  std::vector<std::array<double, kMethods>> taken(static_cast<size_t>(rounds));
  for (int round = -1; round < rounds; ++round) {  // with one warmup round
    for (size_t begin = 0; begin < files.size(); begin += kGroup) {
      const size_t end = std::min(begin + kGroup, files.size());
      for (size_t turn = 0; turn < kMethods; ++turn) {
        const auto method = static_cast<Method>((begin / kGroup + turn) % kMethods);
        const double seconds = seconds_of([&] {
          for (size_t i = begin; i < end; ++i) {
            const data::Draws draws(1, round, static_cast<int64_t>(i), 0);
            method == Method::kLibjpeg  ? libjpeg.decode(files[i])
            : method == Method::kDecode ? cropper.decode(files[i])
                                        : cropper.decode_and_resize(files[i], method, draws);
          }
        });
        if (round >= 0) taken[static_cast<size_t>(round)][static_cast<size_t>(method)] += seconds;
      }
    }
  }
  return taken;
}

void run(const std::string& folder, int rounds) {
  const std::vector<Bytes> files = read_folder(folder);
  const auto taken = measure(files, rounds);
  std::vector<double> rates;
  std::array<std::vector<double>, kMethods> ratios;
  for (const auto& round : taken) {
    rates.push_back(static_cast<double>(files.size()) / round[0]);
    for (size_t method = 0; method < kMethods; ++method) {
      ratios[method].push_back(round[0] / round[method]);
    }
  }
  fmt::print(
      R"({{"bench": "decode", "images": {}, "rounds": {}, "libjpeg_images_per_second": {:.1f}, )"
      R"("decode_over_libjpeg": {:.3f}, "decode_resize_over_libjpeg": {:.3f}, )"
      R"("crop_resize_over_libjpeg": {:.3f}, "shrunk_crop_resize_over_libjpeg": {:.3f}}})"
      "\n",
      files.size(), rounds, bench::median(rates), bench::median(ratios[1]),
      bench::median(ratios[2]), bench::median(ratios[3]), bench::median(ratios[4]));
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) {
  const std::string folder = argc > 1 ? argv[1] : "../shared/data/imagenet-sample";
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  if (rounds < 1 || argc > 3) {
    fmt::print(stderr, "usage: decode_bench [FOLDER OF TAR FILES] [ROUNDS]\n");
    return 2;
  }
  trireme::run(folder, rounds);
  return 0;
}
