// The dataset formats, with one function to open each. All of them throw as open_dataset() does.
// Unless stated otherwise, they leave data.normalize and data.holdout to open_dataset(). With
// data.on_bad_record: SKIP, they skip bad records but still throw if an entire file is of the wrong
// format.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/shape.h"
#include "data/bad_records.h"
#include "data/data.pb.h"
#include "data/dataset.h"
#include "data/files/file.h"
#include "data/formats/token_stream.h"
#include "data/records.h"
#include "data/samples.h"

namespace trireme::data {

// Tables with more columns are refused.
inline constexpr int64_t kMaxColumns = 1 << 20;

// Formats that are read into memory.
Samples read_idx(const DataConfig& config, Part part);
Samples read_cifar(const DataConfig& config, Part part);
// See OpenOptions::columns for `trained`.
Samples read_csv(const DataConfig& config, Part part, const TableColumns& trained);
struct Features {
  std::vector<uint8_t> rows;     // inputs of the network
  std::vector<int64_t> records;  // record number of each row in the file, from 0
};
// Returns the feature columns of a file for inference. `input` is the network's input (f32). The
// file may also have the label columns, which are ignored. If `trained` is not known (its count is
// 0), the columns are taken in the order of the file.
Features read_csv_features(const DataConfig& config, const std::string& path,
                           const TensorSpec& input, const TableColumns& trained,
                           BadRecordPolicy& policy);

// Formats with one file or archive member per sample. Opening only indexes the samples.
std::unique_ptr<Records> open_image_folder(const DataConfig& config, Part part,
                                           const OpenOptions& options);
std::unique_ptr<Records> open_webdataset(const DataConfig& config, Part part,
                                         const OpenOptions& options);
// Formats whose files are memory-mapped.
std::unique_ptr<Dataset> open_npy(const DataConfig& config, Part part);
// Reads only the headers of the training files. Throws as open_npy().
NumberFormat npy_number_format(const DataConfig& config);
std::unique_ptr<Dataset> open_tokens(const DataConfig& config, Part part, uint64_t seed);
// Reads the text into memory. Applies data.holdout itself.
std::unique_ptr<Dataset> open_text(const DataConfig& config, Part part, uint64_t seed);
// Encodes all texts into memory. `part` is the part to open, and `files` selects the files.
std::unique_ptr<Dataset> open_labeled_text(const DataConfig& config, Part part, Part files,
                                           uint64_t seed);
// Opens texts for inference, see read_labeled_records; labels are ignored, and are 0. `spec` is
// that of the training samples.
std::unique_ptr<Dataset> open_unlabeled_texts(std::span<const std::string> paths,
                                              const DataConfig& config, const SampleSpec& spec);
// The tokens of `tokens`, without data.holdout, and of `text`, with it.
std::unique_ptr<TokenStream> open_token_files(const DataConfig& config, Part part);
std::unique_ptr<TokenStream> open_text_stream(const DataConfig& config, Part part);

// Synthetic samples, which are computed when they are read.
SampleSpec synthetic_spec(const SyntheticConfig& config);
std::unique_ptr<Dataset> make_synthetic(const SyntheticConfig& config, Part part, SampleSpec spec);

// Helpers shared by several formats. The checked_ functions return the value of the configuration
// field `path`, and throw ConfigError naming the field if the value is invalid.
Shape checked_shape(const google::protobuf::RepeatedField<int64_t>& extents,
                    const std::string& path);
inline constexpr int kMaxClasses = 1 << 24;  // f32 represents all integers up to this one
int checked_classes(int64_t classes, const std::string& path);
int64_t checked_length(int64_t length, const std::string& path);
// Returns the spec of samples of `length` tokens, whose targets are shifted by one token.
SampleSpec token_spec(int64_t length, int64_t vocabulary);
// Reads a file. If its gzip data is damaged, throws DataError or, if the policy skips bad records,
// returns the bytes before the damage.
File read_for(const BadRecordPolicy& policy, const std::string& path,
              const SizeFromHead& size_of = {});
// Returns a record's label. If it is not in [0, classes), reports the record to `policy` and
// returns nullopt. `field` is the configuration field that sets the number of classes; empty if
// there is none.
std::optional<int32_t> checked_label(uint8_t label, int classes, const std::string& file,
                                     int64_t record, const std::string& field,
                                     BadRecordPolicy& policy);

}  // namespace trireme::data
