// Describes the input that an exported network expects, as text and as metadata of the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/data.pb.h"
#include "trainer/report/sample_info.h"

namespace trireme::cli {

// The range of the values that the caller passes to the network.
enum class InputRange {
  kStored,      // as the samples are stored: pixels from 0 to 255, or numbers as in the files
  kUnit,        // pixels from 0 to 1
  kNormalized,  // scaled and normalized
};

struct InputDescription {
  // Pairs of key and value. docs/files.md lists the keys.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string text;  // "pixels from 0 to 255, RGB, channels first (NCHW)"
  // The transforms to apply to images in files first, or empty if there are none:
  // "resize { size: 256 } then center_crop { size: 224 }".
  std::string transforms;
};

// Describes the input of a network that was trained on `samples` of the data set `data`. kUnit
// requires pixels, see are_pixels().
InputDescription describe_input(const train::SampleInfo& samples, const DataConfig& data,
                                InputRange range);

// Returns true if the samples are bytes, which the network divides by 255.
bool are_pixels(const data::SampleSpec& spec);

}  // namespace trireme::cli
