// What `trireme data pack` puts into shards: samples as files.
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

// What a thread needs to make samples, kept from one to the next.
struct PackTools {
  Decoder decoder;
  Resizer resizer;
  Image whole;
  Image resized;
};

// For any thread.
class PackSource {
 public:
  virtual ~PackSource() = default;
  virtual int64_t size() const = 0;
  virtual int classes() const = 0;
  // Throws DataError naming the record.
  virtual PackedSample read(int64_t index, PackTools& tools) const = 0;
  virtual std::string description() const = 0;
  virtual std::vector<std::string> class_names() const = 0;
  virtual BadRecords bad_records() const = 0;
  // Changes when the samples do.
  virtual uint64_t identity() const = 0;
};

struct PackImages {
  int resize = 0;  // the shorter side of those that are larger; 0: files are copied as they are
  int quality = 95;
};

// The files of a part: data.holdout, normalize, transform, mix and cache are for when shards are
// read. Images of bytes become PNG where they are not in files, other inputs .npy, multiplied by
// SampleSpec::scale. Throws as open_dataset does, and ConfigError for samples without labels.
std::unique_ptr<PackSource> open_pack_source(const DataConfig& config, Part part,
                                             const PackImages& images, const OpenOptions& options);

}  // namespace trireme::data
