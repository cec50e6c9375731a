// Finds out whether a file that is about to be written is one that a configuration reads.
#pragma once

#include <filesystem>
#include <string>

#include "trainer/config/config.pb.h"

namespace trireme::train {

// Returns the file named in `data`, model.onnx or model.init_from that is the file at `path`, also
// by another name (device and inode are compared), or `path` itself if it is an image or a text in
// a folder that `data` names; empty if there is none.
std::string input_at(const std::filesystem::path& path, const RunConfig& config);

}  // namespace trireme::train
