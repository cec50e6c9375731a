// The first character selects the kind of file, and whether labels are required; the rest is the
// file.
#include <array>
#include <optional>

#include "data/formats/labeled_records.h"
#include "tests/fuzz/samples.h"

using trireme::data::BadRecordPolicy;
using trireme::data::LabeledRecord;
using trireme::fuzz::MemoryFile;
using trireme::fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  constexpr std::array kEndings{".csv", ".tsv", ".jsonl", ".txt"};
  const MemoryFile file(trireme::fuzz::text_of(data + 1, size - 1));
  // The kind is known by the name.
  const std::string path = "/tmp/fuzz-" + std::to_string(getpid()) + kEndings[data[0] % 4];
  require(symlink(file.path().c_str(), path.c_str()) == 0, "creating a link succeeds");
  const bool labels = data[0] / 4 % 2 == 0;
  const auto quotes = static_cast<trireme::data::Quotes>(data[0] / 8 % 3);
  for (const bool skips : {false, true}) {
    BadRecordPolicy policy(skips ? std::optional(trireme::data::kUnlimitedBadRecords)
                                 : std::nullopt);
    trireme::fuzz::accept_or_throw<trireme::DataError>([&] {
      trireme::data::read_labeled_records(
          path, {.text = "text", .label = "label", .quotes = quotes, .requires_label = labels},
          policy, [&](const LabeledRecord& record) {
            require(!record.text.empty(), "texts are not empty");
            require(!labels || !record.label.empty(), "labels are not empty");
          });
    });
  }
  unlink(path.c_str());
  return 0;
}
