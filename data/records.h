// Samples still encoded, by number: what formats that keep each in a file or member of its own make
// of them.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/bad_records.h"
#include "data/fingerprint.h"

namespace trireme::data {

class Records {
 public:
  virtual ~Records() = default;
  virtual int64_t size() const = 0;  // at least 1
  virtual int classes() const = 0;   // labels are in [0, classes)
  virtual int32_t label(int64_t index) const = 0;
  // The bytes of the record's image or array; `bytes` keeps its memory. Throws DataError naming
  // file and record. For any thread, as all of this is.
  virtual void read(int64_t index, std::vector<uint8_t>& bytes) const = 0;
  // "train/cat/17.jpg", "train-000017.tar: 00004711.jpg"
  virtual std::string where(int64_t index) const = 0;
  // For people: format and files, "WebDataset data/cifar10/train-{000000..000004}.tar (5 shards)".
  virtual std::string source() const = 0;
  // Empty where they have none.
  virtual std::vector<std::string> class_names() const { return {}; }
  // What was left out when they were opened.
  virtual BadRecords bad_records() const { return {}; }
  // Changes when the records do: files, their sizes and times. For caches.
  virtual uint64_t identity() const = 0;
  // Of what is known without reading a record: names in their order, labels, and sizes as far as
  // they are known.
  virtual Checksums checksums() const = 0;
};

}  // namespace trireme::data
