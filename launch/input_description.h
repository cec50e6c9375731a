// What an exported network expects of its input: for people, and as metadata of the file.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/data.pb.h"
#include "trainer/report/sample_facts.h"

namespace trireme::cli {

// The numbers that the caller of the network has.
enum class InputRange {
  kStored,      // as samples are stored: pixels from 0 to 255, or numbers as in the files
  kUnit,        // pixels from 0 to 1
  kNormalized,  // what the network computes with
};

struct InputDescription {
  // Key and value; docs/files.md lists the keys.
  std::vector<std::pair<std::string, std::string>> metadata;
  std::string text;  // "pixels from 0 to 255, RGB, channels first (NCHW)"
  // "resize { size: 256 } center_crop { size: 224 }": what comes before, on images in files;
  // empty: nothing.
  std::string transforms;
};

// Of a network that was trained on samples as `facts` has them, opened as `data` says. Requires
// pixels for kUnit, see are_pixels.
InputDescription describe_input(const train::SampleFacts& facts, const DataConfig& data,
                                InputRange range);

// Whether samples are bytes, which the network sees divided by 255.
bool are_pixels(const data::SampleSpec& spec);

}  // namespace trireme::cli
