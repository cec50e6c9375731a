#include "data/array_dataset.h"

#include <fmt/format.h>

#include <cstring>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/formats/npy_array.h"
#include "data/records_dataset.h"
#include "data/samples.h"

namespace trireme::data {
namespace {

class ArrayDataset final : public RecordsDataset {
 public:
  explicit ArrayDataset(std::unique_ptr<Records> records) : RecordsDataset(std::move(records)) {
    std::vector<uint8_t> bytes;
    const NpyArray array = read_array(0, bytes);
    dtype_ = array.dtype;
    shape_ = array.shape;
    spec_.input = sample_spec(array, 0, where(0));
    spec_.target = label_spec();
    spec_.classes = records_->classes();
    if (spec_.input.dtype == DType::kU8) spec_.scale = 1.0F / 255;
  }

  void read(SampleId id, std::byte* input, std::byte* target) const override {
    thread_local std::vector<uint8_t> bytes;
    const NpyArray array = read_array(id.index, bytes);
    if (array.dtype != dtype_ || array.shape != shape_) {
      throw DataError(where(id.index),
                      fmt::format("is {}, but the first of {} is {}", array.describe(),
                                  records_->source(), spec_.input.to_string()));
    }
    copy_sample(spec_.input, dtype_, array.elements.data(), input);
    const int32_t label = records_->label(id.index);
    std::memcpy(target, &label, sizeof label);
  }

 private:
  NpyArray read_array(int64_t index, std::vector<uint8_t>& bytes) const {
    records_->read(index, bytes);
    NpyArray array = parse_npy(bytes, where(index));
    if (!array.complete()) throw DataError(where(index), describe_truncation(array));
    return array;
  }

  DType dtype_ = DType::kF32;
  std::vector<int64_t> shape_;
};

}  // namespace

bool holds_arrays(const Records& records) { return records.where(0).ends_with(".npy"); }

std::unique_ptr<Dataset> make_array_dataset(std::unique_ptr<Records> records) {
  return std::make_unique<ArrayDataset>(std::move(records));
}

}  // namespace trireme::data
