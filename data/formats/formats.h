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

#include "core/shape.h"
#include "data/bad_records.h"
#include "data/data.pb.h"
#include "data/dataset.h"
#include "data/file.h"
#include "data/samples.h"

namespace trireme {

Samples read_idx(const DataConfig& config, Part part);
Samples read_cifar(const DataConfig& config, Part part);
Samples read_csv(const DataConfig& config, Part part);

// Nothing is read; samples are computed when asked for.
SampleSpec synthetic_spec(const SyntheticConfig& config);
std::unique_ptr<Dataset> make_synthetic(const SyntheticConfig& config, Part part, SampleSpec spec);

// What several formats share. `path` is the configuration's field, for the ConfigError.
Shape checked_shape(const google::protobuf::RepeatedField<int64_t>& extents,
                    const std::string& path);
int checked_classes(int64_t classes, const std::string& path);
// The file as the policy wants it: damaged gzip is an error, or what came before is read.
File read_for(const BadRecordPolicy& policy, const std::string& path);
// A record's label. `field` sets the number of classes. Nothing when it is none of them, which the
// policy then knows.
std::optional<int32_t> checked_label(uint8_t label, int classes, const std::string& file,
                                     int64_t record, const std::string& field,
                                     BadRecordPolicy& policy);

}  // namespace trireme
