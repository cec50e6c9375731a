// Expands file name patterns: "train-{000000..001281}.tar", "train-*.tar", "{a,b}/x.bin".
#pragma once

#include <google/protobuf/repeated_field.h>

#include <string>
#include <vector>

namespace trireme::data {

// Returns the paths that match the patterns under `root`, in the order of the patterns. Patterns
// may be absolute. Matches of *, ? and [...] are sorted by bytes. Braces contain a list or a range
// of numbers with optional leading zeros, and may be nested. Throws ConfigError naming `field` if
// there are no patterns, a pattern is invalid, or a file is listed twice. Throws DataError if
// `root` is not a folder, a file does not exist, or a pattern has no matches.
std::vector<std::string> expand_names(
    const std::string& root, const google::protobuf::RepeatedPtrField<std::string>& patterns,
    const std::string& field);

}  // namespace trireme::data
