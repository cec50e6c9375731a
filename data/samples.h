// All samples of a dataset in memory, for formats whose datasets are small.
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
  std::string source;            // format and files, for messages
  BadRecords bad;                // skipped records
  TableColumns columns;          // see Dataset::columns
};

// Sets samples.bad to the records that the policy skipped. Throws DataError if there are too many
// of them, or no samples.
void finalize(const BadRecordPolicy& policy, Samples& samples);
// Converts images from planes [C, H, W] to channels-last, in place.
void interleave(std::vector<uint8_t>& images, size_t channels, size_t pixels);
// Removes the rows, of `bytes` each, for which `keep` is false.
void keep_rows(std::vector<uint8_t>& rows, size_t bytes, const std::vector<bool>& keep);

// Returns a dataset that holds `samples`.
std::unique_ptr<Dataset> make_dataset(Samples samples);

// Returns "60000 samples of u8 [1, 28, 28] in 10 classes".
std::string describe(const SampleSpec& spec, int64_t count);
// Returns ", 3 bad record(s) skipped", or "" if there are none.
std::string skipped_note(const BadRecords& bad);

// Return the spec of class labels as targets, and the labels as bytes of such targets.
inline TensorSpec label_spec() { return {DType::kI32, Shape{}, Layout::row_major()}; }
std::vector<uint8_t> label_bytes(std::span<const int32_t> labels);
// Returns the labels in the bytes of targets. Empty if the targets are not class labels.
std::vector<int32_t> labels_in(const SampleSpec& spec, std::span<const uint8_t> targets);

}  // namespace trireme::data
