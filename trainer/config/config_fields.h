// The fields that a configuration can have, by name: for completion, and for who has mistaken one.
#pragma once

#include <google/protobuf/descriptor.h>

#include <string>
#include <vector>

namespace trireme::train {

struct FieldPath {
  std::string path;  // "optimizer.sgd.momentum", "model.network.layer[0].dense.units"
  int depth = 0;     // names in it
  const google::protobuf::FieldDescriptor* field = nullptr;
};

// All fields of the message and of the messages in it, depth first; of repeated messages the
// element 0.
std::vector<FieldPath> all_fields(const google::protobuf::Descriptor* message);

// For a field `name` that `message`, which is at `path` of `root`, does not have: "; did you mean
// 'momentum'?", or the path of the field or value of that name elsewhere ("optimizer.sgd.momentum",
// "train.precision=BF16"), or what there is where that is little, or nothing.
std::string suggest_field(const google::protobuf::Descriptor* root, const std::string& path,
                          const google::protobuf::Descriptor* message, const std::string& name);

// What can stand where `typed` is being typed, "FIELD", "FIELD=" or "FIELD=VALUE" of --set: paths
// one name deeper, ending in "." where more must follow, in "=" where a value must, or in the
// values of a field that has a few. Indices of repeated messages are as they were typed.
std::vector<std::string> complete_assignment(const google::protobuf::Descriptor* root,
                                             const std::string& typed);

}  // namespace trireme::train
