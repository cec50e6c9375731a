// Scans a tar shard for samples.
#pragma once

#include <cstdint>
#include <string>

#include "data/formats/tar_index.h"

namespace trireme::data {

// The source of a sample's label: the text of its ".cls" member or, if `json_field` is set, a field
// of its ".json" member. Dots select nested fields: "meta.label".
struct LabelSource {
  std::string json_field;

  // Returns a hash of the setting.
  uint64_t identity() const;
};

// Returns the stamp of a shard as it is now. Throws DataError if the shard is missing or not a
// regular file.
TarStamp stamp_of(const std::string& shard, const LabelSource& labels);

// Builds the index of a shard in memory. As in WebDataset, consecutive members whose names are
// equal up to the first dot of the file name form one sample; file names without a dot or beginning
// with a dot are ignored. The index lists each record that is not a complete sample, and a
// truncation or damage of the shard, as a problem. Throws DataError if the shard cannot be read, is
// compressed, or is not a tar file.
TarIndex walk_tar(const std::string& shard, const LabelSource& labels);

}  // namespace trireme::data
