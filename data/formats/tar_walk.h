// Finds the samples of a tar shard.
#pragma once

#include <cstdint>
#include <string>

#include "data/formats/tar_index.h"

namespace trireme::data {

// Where the label of a sample comes from: the text of its member ".cls" or, with a name here, a
// field of its ".json", those within others by dots: "meta.label".
struct LabelSource {
  std::string json_field;

  // What tells one from another.
  uint64_t identity() const;
};

// The shard's size and time. Throws DataError when it is not there or no file.
TarStamp stamp_of(const std::string& shard, const LabelSource& labels);

// The shard's index, in memory. Members that follow one another and are named alike up to the
// first dot of the file name are one sample; file names without one, or that begin with one, are
// passed over, as webdataset has it. Each record that is no whole sample is a problem of the index,
// and so is what makes the shard end early. Throws DataError when the shard cannot be read, is
// compressed, or no tar at all.
TarIndex walk_tar(const std::string& shard, const LabelSource& labels);

}  // namespace trireme::data
