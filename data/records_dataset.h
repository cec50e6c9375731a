// The base class of datasets that decode Records.
#pragma once

#include <fmt/format.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/dataset.h"
#include "data/records.h"
#include "data/samples.h"

namespace trireme::data {

class RecordsDataset : public Dataset {
 public:
  const SampleSpec& spec() const override { return spec_; }
  int64_t size() const override { return records_->size(); }
  std::string where(int64_t index) const override { return records_->where(index); }
  BadRecords bad_records() const override { return records_->bad_records(); }
  std::vector<std::string> class_names() const override { return records_->class_names(); }
  std::vector<int32_t> labels() const override {
    if (records_->classes() < 1) return {};
    std::vector<int32_t> labels;
    labels.reserve(static_cast<size_t>(size()));
    for (int64_t i = 0; i < size(); ++i) labels.push_back(records_->label(i));
    return labels;
  }
  std::string description() const override {
    return fmt::format("{}: {}{}", records_->source(), describe(spec_, size()),
                       skipped_note(bad_records()));
  }
  Checksums checksums() const override {
    Checksums sums = records_->checksums();
    std::vector<uint8_t> bytes;
    const CheckedSamples checked(size(), 0);
    for (int64_t i = 0; i < checked.count(); ++i) {
      try {
        records_->read(checked[i], bytes);
      } catch (const DataError&) {
        bytes.clear();
      }
      sums.inputs = checksum_of(bytes, sums.inputs);
    }
    return sums;
  }

 protected:
  explicit RecordsDataset(std::unique_ptr<Records> records) : records_(std::move(records)) {}

  const std::unique_ptr<Records> records_;
  SampleSpec spec_;  // set by the derived class's constructor
};

}  // namespace trireme::data
