// The backends under test.
#pragma once

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "ops/backend.h"

namespace trireme::ops {

using BackendMaker = std::function<std::unique_ptr<Backend>(Device&)>;

struct Target {
  std::string name;
  std::function<std::unique_ptr<Device>(int threads)> device;
  BackendMaker backend;
  DType dtype = DType::kF32;
  double tolerance = 0;  // ||result - reference|| / ||reference||
  // Opaque layouts of this backend in which its plans may receive [N, C, H, W]; the same number for
  // every spec.
  std::function<std::vector<Layout>(const TensorSpec&)> blocked;
  // True if row-major images are as efficient as others, so that plans preserve them.
  bool keeps_row_major_images = true;
};

inline void PrintTo(const Target& target, std::ostream* out) { *out << target.name; }

std::vector<Target> targets();
// The targets for convolutions and dense layers: these, and TF32.
std::vector<Target> multiplying_targets();

}  // namespace trireme::ops
