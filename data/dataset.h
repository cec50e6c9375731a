// A map-style dataset: samples by index. It validates its files when it is opened, and then any
// thread can read any sample at any time.
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

class Tokenizer;

// The type and shape of a sample as stored. The input is u8 or f32 [C, H, W] or [F] (u8 images are
// channels-last), or i32 [T] for tokens. The target is i32 [] for a class label, f32 [classes] for
// class probabilities, f32 [F] for regression, or i32 [T] for the next tokens.
struct SampleSpec {
  TensorSpec input;
  TensorSpec target;
  int classes = 0;  // labels are in [0, classes); 0 for regression
  // The network sees (x * scale - mean[c]) / stddev[c]. `mean` and `stddev` have one value for all
  // channels (features of [F]), or one for each; see ops::NormalizeInput.
  float scale = 1;
  std::vector<float> mean{0};
  std::vector<float> stddev{1};
  // Size of the vocabulary of input tokens if labels are not tokens of it; otherwise 0.
  int64_t vocab_size = 0;
  double bytes_per_token = 0;  // bytes of text per token, 0 if unknown

  // Returns whether the target is a label for each position of a sequence.
  bool has_token_labels() const { return target.dtype == DType::kI32 && target.shape.rank() == 1; }
  // Returns the length of a sample in tokens; 0 if it does not consist of tokens.
  int64_t tokens_per_sample() const { return has_token_labels() ? target.shape[0] : 0; }
};

// Identifies a sample and its occurrence, which determines its random transforms.
struct SampleId {
  int64_t index = 0;
  int64_t epoch = 0;
  // The position in the epoch if a sample can occur several times in it (data.sampling), otherwise
  // -1.
  int64_t draw = -1;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual const SampleSpec& spec() const = 0;
  virtual int64_t size() const = 0;  // at least 1
  // Writes the input and the target of a sample; id.index must be in [0, size). Throws DataError
  // naming the file and the record if the sample cannot be read.
  virtual void read(SampleId id, std::byte* input, std::byte* target) const = 0;
  // Returns a description for messages: "IDX, 60000 samples of u8 [1, 28, 28] in 10 classes, from
  // data/mnist/train-images-idx3-ubyte.gz".
  virtual std::string description() const = 0;
  // Returns where a sample is stored, for messages: "train-00017.tar: img_0042.jpg". Empty if it is
  // not known.
  virtual std::string where(int64_t /*index*/) const { return {}; }
  // Returns the properties of the encoded image if the sample is stored as one, otherwise nullopt.
  // Throws as read() does.
  virtual std::optional<ImageInfo> stored_image(int64_t /*index*/) const { return {}; }
  // Returns whether the text of the sample follows that of the sample id.index - 1, as the windows
  // of a token file follow each other.
  virtual bool continues(SampleId /*id*/) const { return false; }
  // Returns true if read() only copies or computes, so that it neither blocks nor fails.
  virtual bool in_memory() const { return false; }
  // Returns the records that were skipped when the dataset was opened, see data.on_bad_record.
  virtual BadRecords bad_records() const { return {}; }
  // Returns the name of each class, for messages. Empty if classes have no names.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Returns the label of each sample if labels are known without decoding. Empty if they are not,
  // or if samples do not have exactly one class each.
  virtual std::vector<int32_t> labels() const { return {}; }
  // Returns the number of tokens of each sample before its padding, at least 1, if samples have
  // padding at their ends and a class each. Empty otherwise. read() may leave out tokens at random,
  // and may add as many as stay below the next possible length of a batch, see length_buckets.h.
  virtual std::vector<int32_t> lengths() const { return {}; }
  // Returns checksums of the samples as stored, before random transforms, see fingerprint.h. The
  // default reads the samples that CheckedSamples selects; one that cannot be read contributes a
  // checksum of its own.
  virtual Checksums checksums() const;
  // Returns the columns of the training table. `count` is 0 if the samples do not come from a
  // table.
  virtual TableColumns columns() const { return {}; }
  // Returns the tokenizer of the text that the tokens of the samples stand for; null if there is
  // none. See TokenText for texts of characters or bytes.
  virtual std::shared_ptr<const Tokenizer> tokenizer() const { return {}; }
};

// Base class of datasets that modify another one. Forwards all functions by default.
class WrappedDataset : public Dataset {
 public:
  const SampleSpec& spec() const override { return inner_->spec(); }
  int64_t size() const override { return inner_->size(); }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    inner_->read(id, input, target);
  }
  std::string description() const override { return inner_->description(); }
  std::string where(int64_t index) const override { return inner_->where(index); }
  std::optional<ImageInfo> stored_image(int64_t index) const override {
    return inner_->stored_image(index);
  }
  bool continues(SampleId id) const override { return inner_->continues(id); }
  bool in_memory() const override { return inner_->in_memory(); }
  BadRecords bad_records() const override { return inner_->bad_records(); }
  std::vector<std::string> class_names() const override { return inner_->class_names(); }
  std::vector<int32_t> labels() const override { return inner_->labels(); }
  std::vector<int32_t> lengths() const override { return inner_->lengths(); }
  Checksums checksums() const override { return inner_->checksums(); }
  TableColumns columns() const override { return inner_->columns(); }
  std::shared_ptr<const Tokenizer> tokenizer() const override { return inner_->tokenizer(); }

 protected:
  explicit WrappedDataset(std::unique_ptr<Dataset> inner) : inner_(std::move(inner)) {}
  const Dataset& inner() const { return *inner_; }

 private:
  std::unique_ptr<Dataset> inner_;
};

// Returns the name of each output of a network that is trained on these samples: the names of the
// classes or, for regression, of the target columns. Empty if they have no names.
std::vector<std::string> output_names(const Dataset& dataset);

enum class Part { kTraining, kEvaluation };

struct OpenOptions {
  uint64_t seed = 0;  // for random transforms
  // Called with progress messages while opening takes long: "indexing shard 12 of 1282".
  std::function<void(std::string_view)> progress = {};
  // The columns of the table that the network was trained on, which the files must have too. If
  // `count` is 0, the columns of the training file are used.
  TableColumns columns = {};
};

// Opens the training or evaluation samples. Throws ConfigError ("data.FIELD: ...") if the
// configuration is invalid, and DataError if a file is missing, damaged or has invalid contents.
// With data.on_bad_record: SKIP, bad records are skipped instead.
std::unique_ptr<Dataset> open_dataset(const DataConfig& config, Part part,
                                      const OpenOptions& options = {});

// What a configuration, and the headers of .npy files, tell about the samples before they are read.
struct NumberFormat {
  float scale = 1;          // SampleSpec::scale
  bool regression = false;  // targets are numbers instead of classes
};
// Returns nullopt if the .npy files cannot be read, which open_dataset() reports.
std::optional<NumberFormat> number_format(const DataConfig& config);

// Throws DataError unless the evaluation samples have the same shapes, types and classes as the
// training samples. They can differ if they come from separate files.
void check_compatible(const Dataset& training, const Dataset& evaluation);

}  // namespace trireme::data
