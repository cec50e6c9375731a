// Files by pattern: "train-{000000..001281}.tar", "train-*.tar", "{a,b}/x.bin".
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>
#include <vector>

namespace trireme::data {

// The paths that the patterns stand for under `root` (patterns may be absolute): in the order of
// the patterns; of *, ? and [...] in the order of their bytes. Braces hold a list or two numbers,
// whose zeros in front are kept, and may be nested. Throws ConfigError naming `field` for a bad
// pattern, none at all, or one file named twice (data.root where that is no folder), DataError when
// a file is not there or a pattern matches none.
std::vector<std::string> expand_names(
    const std::string& root, const google::protobuf::RepeatedPtrField<std::string>& patterns,
    const std::string& field);

}  // namespace trireme::data
