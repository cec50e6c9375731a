// The part of the flat arrays that a rank updates. With ZeRO (Rajbhandari et al.,
// arXiv:1910.02054) each rank updates an equal part of every gradient bucket and has optimizer
// state, and with ZeRO-2 gradients, for these parts only. Otherwise every rank updates everything.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"
#include "trainer/config/config.h"

namespace trireme::train {

struct Shard {
  int index = 0;               // of this rank
  int count = 1;               // number of ranks that have the shards
  bool has_gradients = false;  // the gradients are sharded, too

  bool is_whole() const { return count == 1; }
};

// Returns whether parallel.shard may be GRADIENTS.
bool can_shard_gradients(const RunConfig& config);

// Returns the shard of a rank of a run (parallel.shard). The replicas of a stage have its shards.
Shard shard_of(const RunConfig& config, int rank, int ranks);

// Sharded buckets are padded to a multiple of this number of elements per rank
// (CompileOptions::bucket_multiple), so that all parts are aligned in any dtype.
inline constexpr int64_t kShardAlignment = 32;

// Elements [begin, end) of the flat arrays.
struct ArrayPart {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t slot_shift = 0;  // as in ops::UpdateRange
  int64_t gradient_shift = 0;
};

// Returns the parts of a shard, one for each bucket, in ascending order.
std::vector<ArrayPart> parts_of(const model::Parameters& parameters, Shard shard);

// Returns the number of elements of each optimizer state array.
int64_t slot_elements(const model::Parameters& parameters, Shard shard);

// Returns the number of elements of the gradient array, including the metrics in front. If
// gradients are sharded, those of the parts begin at kShardAlignment.
int64_t gradient_elements(const model::Parameters& parameters, Shard shard);

}  // namespace trireme::train
