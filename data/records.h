// Encoded samples by index, from formats that store each sample in a file or archive member of its
// own.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/bad_records.h"
#include "data/fingerprint.h"

namespace trireme::data {

// All functions are thread-safe.
class Records {
 public:
  virtual ~Records() = default;
  virtual int64_t size() const = 0;  // at least 1
  virtual int classes() const = 0;   // labels are in [0, classes)
  virtual int32_t label(int64_t index) const = 0;
  // Reads the encoded image or array into `bytes`, reusing its memory. Throws DataError naming the
  // file and the record if it cannot be read.
  virtual void read(int64_t index, std::vector<uint8_t>& bytes) const = 0;
  // Returns where a record is stored: "train/cat/17.jpg", "train-000017.tar: 00004711.jpg".
  virtual std::string where(int64_t index) const = 0;
  // Returns the format and the files, for messages: "WebDataset
  // data/cifar10/train-{000000..000004}.tar (5 shards)".
  virtual std::string source() const = 0;
  // Returns the name of each class. Empty if classes have no names.
  virtual std::vector<std::string> class_names() const { return {}; }
  // Returns the records that were skipped when the files were opened.
  virtual BadRecords bad_records() const { return {}; }
  // Returns a hash of the files, their sizes and modification times, which identifies the records
  // in caches.
  virtual uint64_t identity() const = 0;
  // Returns checksums of everything that is known without reading records: their names in order,
  // labels and, if known, sizes.
  virtual Checksums checksums() const = 0;
};

}  // namespace trireme::data
