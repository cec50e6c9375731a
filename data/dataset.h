// Samples by number. A dataset opens its files, checks them, and then reads any sample at any time
// from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "data/bad_records.h"
#include "data/fingerprint.h"
#include "data/images/codec.h"
#include "data/table_columns.h"

namespace trireme {
class DataConfig;  // data/data.proto
}  // namespace trireme

namespace trireme::data {

// What one sample is, as stored: the input (u8 or f32 [C, H, W] or [F]; images of u8 are
// channels-last; i32 [T] for tokens) and the target (i32 [] for a class label, f32 [classes] for
// probabilities of classes, f32 [F] for regression, i32 [T] for the tokens that follow).
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

// Which sample, and when it comes, on which depends how it is transformed.
struct SampleId {
  int64_t index = 0;
  int64_t epoch = 0;
  // The position in the epoch, where a sample may come more than once in it (data.sampling); -1:
  // each comes once.
  int64_t draw = -1;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const SampleSpec& spec() const = 0;
  virtual int64_t size() const = 0;  // at least 1
  // Writes the sample, `index` in [0, size), and its target. Throws DataError naming file and
  // record.
  virtual void read(SampleId id, std::byte* input, std::byte* target) const = 0;
  // For people: "IDX, 60000 samples of u8 [1, 28, 28] in 10 classes, from
  // data/mnist/train-images-idx3-ubyte.gz".
  virtual std::string description() const = 0;
  // For people: where a sample comes from, "train-00017.tar: img_0042.jpg" as far as that is known.
  virtual std::string where(int64_t /*index*/) const { return {}; }
  // For people: a sample that is a image in a file, as it is there. Throws as read() does.
  virtual std::optional<ImageInfo> stored(int64_t /*index*/) const { return {}; }
  // Whether read() but copies or computes, and so neither waits nor fails.
  virtual bool in_memory() const { return false; }
  // What was left out when it was opened, see data.on_bad_record.
  virtual BadRecords bad_records() const { return {}; }
  // For people: the name of each class; empty where they have none.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Of each sample, as far as that is known without decoding; empty where it is not, and where
  // samples have no class of their own.
  virtual std::vector<int32_t> labels() const { return {}; }
  // Of the samples as they are stored, before anything random, see fingerprint.h. Reads those that
  // CheckedSamples says; one that cannot be read has a checksum of its own.
  virtual Checksums checksums() const;
  // Of the training table that the samples belong to; count 0 where they come from no table.
  virtual TableColumns columns() const { return {}; }
};

// A dataset made of another one: what it does not say otherwise is as it was.
class WrappedDataset : public Dataset {
 public:
  const SampleSpec& spec() const override { return inner_->spec(); }
  int64_t size() const override { return inner_->size(); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    inner_->read(id, input, target);
  }
  std::string description() const override { return inner_->description(); }
  std::string where(int64_t index) const override { return inner_->where(index); }
  std::optional<ImageInfo> stored(int64_t index) const override { return inner_->stored(index); }
  bool in_memory() const override { return inner_->in_memory(); }
  BadRecords bad_records() const override { return inner_->bad_records(); }
  std::vector<std::string> class_names() const override { return inner_->class_names(); }
  std::vector<int32_t> labels() const override { return inner_->labels(); }
  Checksums checksums() const override { return inner_->checksums(); }
  TableColumns columns() const override { return inner_->columns(); }

 protected:
  explicit WrappedDataset(std::unique_ptr<Dataset> inner) : inner_(std::move(inner)) {}
  const Dataset& inner() const { return *inner_; }

 private:
  std::unique_ptr<Dataset> inner_;
};

// For people: the name of each output of a network for such samples, which is that of a class or,
// in regression, of a column; empty where they have none.
std::vector<std::string> output_names(const Dataset& dataset);

enum class Part { kTraining, kEvaluation };

struct OpenOptions {
  uint64_t seed = 0;  // of what is random in data.transform
  // Told while opening takes its time: "indexing shard 12 of 1282".
  std::function<void(std::string_view)> progress = {};
  // Of the table that the network was trained on, which the files must have too. Where the count is
  // 0 they are those of the training part's file.
  TableColumns columns = {};
};

// Throws ConfigError ("data.FIELD: ...") when the configuration cannot be followed, DataError when
// a file is missing, damaged or holds what it should not; data.on_bad_record: SKIP leaves single
// records out instead.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Part part,
                                      const OpenOptions& options = {});

// Throws DataError unless a network for the training samples takes the evaluation samples too:
// files of their own may hold something else.
void check_alike(const Dataset& training, const Dataset& evaluation);

}  // namespace trireme::data
