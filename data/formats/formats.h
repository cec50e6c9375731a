// One function a format: reads the files of a part whole, checks them and hands over the samples.
// They throw as open_dataset does and leave data.normalize and data.holdout to it.
#pragma once

#include <google/protobuf/repeated_field.h>

#include <cstdint>
#include <memory>
#include <string>

#include "core/shape.h"
#include "data/data.pb.h"
#include "data/dataset.h"
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
// The label of a record, when it is one; `field` sets the number of classes.
int32_t checked_label(uint8_t label, int classes, const std::string& file, int64_t record,
                      const std::string& field);

}  // namespace trireme
