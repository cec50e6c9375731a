// All samples of a part in memory: what every format makes of its files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "data/bad_records.h"
#include "data/dataset.h"

namespace trireme::data {

struct Samples {
  SampleSpec spec;
  int64_t count = 0;
  std::vector<uint8_t> inputs;   // count x spec.input.bytes()
  std::vector<uint8_t> targets;  // count x spec.target.bytes()
  std::string source;            // for people: format and files
  BadRecords bad;                // that were left out
  TableColumns columns;          // see Dataset::columns
};

// What the policy left out of the samples, which are still some. Throws DataError when they are too
// few, or the bad ones too many.
void settle(const BadRecordPolicy& policy, Samples& samples);
// Images whose channels are planes, each of [C, H, W], become channels-last.
void interleave(std::vector<uint8_t>& images, size_t channels, size_t pixels);
// Leaves out the rows, each of `bytes`, that are not to stay.
void keep_rows(std::vector<uint8_t>& rows, size_t bytes, const std::vector<bool>& stays);

std::unique_ptr<Dataset> make_dataset(Samples samples);

// "60000 samples of u8 [1, 28, 28] in 10 classes"
std::string describe(const SampleSpec& spec, int64_t count);
// ", 3 bad record(s) left out" or nothing
std::string left_out(const BadRecords& bad);

// Labels of classes, as stored.
inline TensorSpec label_spec() { return {DType::kI32, Shape{}, Layout::row_major()}; }
std::vector<uint8_t> label_bytes(std::span<const int32_t> labels);
// Back from the targets' bytes; empty where the targets are no labels.
std::vector<int32_t> labels_in(const SampleSpec& spec, std::span<const uint8_t> targets);

}  // namespace trireme::data
