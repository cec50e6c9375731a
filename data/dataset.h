// Samples by number. A dataset opens its files, checks them, and then reads any sample at any time
// from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "data/bad_records.h"

namespace trireme {

// What one sample is, as stored: the input (u8 or f32; [C, H, W] or [F]; row-major or
// channels-last) and the target (i32 [] for a class label, f32 [F] for regression).
struct SampleSpec {
  TensorSpec input;
  TensorSpec target;
  int classes = 0;  // labels are in [0, classes); 0: regression
  // How the network should see the input: (x * scale - mean[c]) / deviation[c], one value for all
  // or one for each channel (feature of [F]); see NormalizeInput.
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> deviation{1};
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const SampleSpec& spec() const = 0;
  virtual int64_t size() const = 0;  // at least 1
  // Writes sample `index` of [0, size) and its target. Throws DataError naming file and record.
  virtual void read(int64_t index, std::byte* input, std::byte* target) const = 0;
  // For people: "IDX, 60000 samples of u8 [1, 28, 28] in 10 classes, from
  // data/mnist/train-images-idx3-ubyte.gz".
  virtual std::string description() const = 0;
  // For people: where a sample comes from, "train-00017.tar: img_0042.jpg" as far as that is known.
  virtual std::string where(int64_t /*index*/) const { return {}; }
  // Whether read() but copies or computes, and so neither waits nor fails.
  virtual bool in_memory() const { return false; }
  // What was left out when it was opened, see data.on_bad_record.
  virtual BadRecords bad_records() const { return {}; }
};

class DataConfig;  // data/data.proto

enum class Part { kTraining, kEvaluation };

// Throws ConfigError ("data.FIELD: ...") when the configuration cannot be followed, DataError when
// a file is missing, damaged or holds what it should not; data.on_bad_record: SKIP leaves single
// records out instead.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Part part);

// Throws DataError unless a network for the training samples takes the evaluation samples too:
// files of their own may hold something else.
void check_alike(const Dataset& training, const Dataset& evaluation);

}  // namespace trireme
