#include "trainer/optimizer/shard.h"

#include "trainer/config/grid.h"

namespace trireme::train {

bool can_shard_gradients(const RunConfig& config) {
  return config.parallel().stages() <= 1 && !config.data().has_length_buckets();
}

Shard shard_of(const RunConfig& config, int rank, int ranks) {
  const Grid grid = grid_of(config, rank, ranks);
  if (config.parallel().shard() == ParallelConfig::NONE || grid.replicas == 1) return {};
  return {grid.replica, grid.replicas, config.parallel().shard() == ParallelConfig::GRADIENTS};
}

std::vector<ArrayPart> parts_of(const model::Parameters& parameters, Shard shard) {
  if (shard.is_whole()) return {{0, parameters.trained_elements}};
  std::vector<ArrayPart> parts;
  int64_t begin = 0, slots = 0;
  for (const int64_t end : parameters.bucket_ends) {
    const int64_t elements = (end - begin) / shard.count;
    const int64_t own = begin + shard.index * elements;
    const int64_t shift = slots - own;
    parts.push_back(
        {own, own + elements, shift, shard.has_gradients ? shift + kShardAlignment : 0});
    slots += elements;
    begin = end;
  }
  return parts;
}

int64_t slot_elements(const model::Parameters& parameters, Shard shard) {
  return parameters.trained_elements / shard.count;
}

int64_t gradient_elements(const model::Parameters& parameters, Shard shard) {
  if (!shard.has_gradients) return parameters.trained_elements;
  return kShardAlignment + slot_elements(parameters, shard);
}

}  // namespace trireme::train
