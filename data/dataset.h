// Samples by number. A dataset opens its files, checks them, and then reads any sample at any time from
// any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace trireme {

// What one sample is, as stored: the input (u8 or f32; [C, H, W] or [F]; row-major or channels-last) and the
// target (i32 [] for a class label, f32 [F] for regression).
struct SampleSpec {
  TensorSpec input;
  TensorSpec target;
  int classes = 0;  // 0: regression
  // How the network should see the input: (x * scale - mean[c]) / deviation[c]; see NormalizeInput.
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> deviation{1};
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const SampleSpec& spec() const = 0;
  virtual int64_t size() const = 0;
  // Writes the sample and its target. Throws DataError naming file and record.
  virtual void read(int64_t index, std::byte* input, std::byte* target) const = 0;
  virtual std::string description() const = 0;  // for people: format, files, count
};

class DataConfig;  // data/data.proto

enum class Part { kTraining, kEvaluation };

// Throws ConfigError or DataError. `default_root` is where relative paths without data.root are looked up.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Part part);

}  // namespace trireme
