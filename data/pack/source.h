// Reads the samples that `trireme data pack` writes into shards, each as the contents of a file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/bad_records.h"
#include "data/dataset.h"
#include "data/images/codec.h"
#include "data/images/resize.h"

namespace trireme {
class DataConfig;
}  // namespace trireme

namespace trireme::data {

struct PackedSample {
  std::string_view extension;  // "jpg", "png", "npy"
  std::vector<uint8_t> bytes;
  int32_t label = 0;
};

// Decoders and buffers of a thread, reused for all of its samples.
struct PackTools {
  explicit PackTools(bool apply_exif_orientation = true)
      : decoder(kMaxPixels, apply_exif_orientation) {}

  Decoder decoder;
  Resizer resizer;
  Image decoded;
  Image resized;
};

// Reads the samples of a dataset, each as the contents of a file. Thread-safe.
class PackSource {
 public:
  virtual ~PackSource() = default;
  virtual int64_t size() const = 0;
  virtual int classes() const = 0;
  // Throws DataError naming the record if it cannot be read.
  virtual PackedSample read(int64_t index, PackTools& tools) const = 0;
  virtual std::string description() const = 0;
  virtual std::vector<std::string> class_names() const = 0;
  virtual BadRecords bad_records() const = 0;
  // Returns a hash that changes if the samples change.
  virtual uint64_t identity() const = 0;
};

struct PackImages {
  int resize = 0;    // reduces the shorter side of larger images to this; 0 copies files unchanged
  int quality = 95;  // JPEG quality of resized images
  // Whether resized images, which have no EXIF block, are turned as it says; see DecodeConfig.
  bool apply_exif_orientation = true;
};

// Throws ConfigError if the part is held out from the training files when they are opened.
void check_part_to_pack(const DataConfig& config, Part part);

// Opens the samples of a part for packing. Ignores data.holdout, normalize, transform, mix and
// cache, which apply when shards are read. Samples that are stored in files of their own are
// copied; otherwise u8 images become PNG files, and other inputs become .npy files, with f32 values
// multiplied by SampleSpec::scale. Throws as open_dataset() does, and ConfigError if samples have
// no class labels.
std::unique_ptr<PackSource> open_pack_source(const DataConfig& config, Part part,
                                             const PackImages& images, const OpenOptions& options);

}  // namespace trireme::data
