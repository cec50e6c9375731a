// One function a format: reads the files of a part whole, checks them and hands over the samples.
// They throw as open_dataset does and leave data.normalize and data.holdout to it. With
// data.on_bad_record: SKIP they leave out single records, but still refuse files that are not what
// they are taken for.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/shape.h"
#include "data/bad_records.h"
#include "data/data.pb.h"
#include "data/dataset.h"
#include "data/files/file.h"
#include "data/records.h"
#include "data/samples.h"

namespace trireme::data {

Samples read_idx(const DataConfig& config, Part part);
Samples read_cifar(const DataConfig& config, Part part);
// `trained` as OpenOptions::columns.
Samples read_csv(const DataConfig& config, Part part, const TableColumns& trained);
struct Features {
  std::vector<uint8_t> rows;     // as the network reads them
  std::vector<int64_t> records;  // the number of each in the file, from 0
};
// Rows of `input` (f32) alone, of a file that may have the label columns too, which are not read.
// Where `trained` is not known (count 0), the file's own order is taken.
Features read_csv_features(const DataConfig& config, const std::string& path,
                           const TensorSpec& input, const TableColumns& trained,
                           BadRecordPolicy& policy);

// What keeps each sample in a file or member of its own is only indexed when opened.
std::unique_ptr<Records> open_image_folder(const DataConfig& config, Part part,
                                           const OpenOptions& options);
std::unique_ptr<Records> open_webdataset(const DataConfig& config, Part part,
                                         const OpenOptions& options);
// Files that are mapped.
std::unique_ptr<Dataset> open_npy(const DataConfig& config, Part part);
std::unique_ptr<Dataset> open_tokens(const DataConfig& config, Part part);
// Follows data.holdout itself.
std::unique_ptr<Dataset> open_text(const DataConfig& config, Part part);

// Nothing is read; samples are computed when asked for.
SampleSpec synthetic_spec(const SyntheticConfig& config);
std::unique_ptr<Dataset> make_synthetic(const SyntheticConfig& config, Part part, SampleSpec spec);

// What several formats share. `path` is the configuration's field, for the ConfigError.
Shape checked_shape(const google::protobuf::RepeatedField<int64_t>& extents,
                    const std::string& path);
inline constexpr int kMaxClasses = 1 << 24;  // f32 counts exactly to here
int checked_classes(int64_t classes, const std::string& path);
int64_t checked_length(int64_t length, const std::string& path);
// Samples of `length` tokens, whose targets are one further.
SampleSpec token_spec(int64_t length, int64_t vocabulary);
// The file as the policy wants it: damaged gzip is an error, or what came before is read.
File read_for(const BadRecordPolicy& policy, const std::string& path);
// A record's label. `field` sets the number of classes. Nothing when it is none of them, which the
// policy then knows.
std::optional<int32_t> checked_label(uint8_t label, int classes, const std::string& file,
                                     int64_t record, const std::string& field,
                                     BadRecordPolicy& policy);

}  // namespace trireme::data
