#include "trainer/optimizer/shard.h"

namespace trireme::train {

Shard shard_of(const RunConfig& config, int rank, int ranks) {
  if (config.parallel().shard() == ParallelConfig::NONE) return {};
  return {rank, ranks};
}

std::vector<ArrayPart> parts_of(const model::Parameters& parameters, Shard shard) {
  if (shard.is_whole()) return {{0, parameters.trained_elements}};
  std::vector<ArrayPart> parts;
  int64_t begin = 0, slots = 0;
  for (const int64_t end : parameters.bucket_ends) {
    const int64_t elements = (end - begin) / shard.count;
    const int64_t own = begin + shard.index * elements;
    parts.push_back({own, own + elements, slots - own});
    slots += elements;
    begin = end;
  }
  return parts;
}

int64_t slot_elements(const model::Parameters& parameters, Shard shard) {
  return parameters.trained_elements / shard.count;
}

}  // namespace trireme::train
