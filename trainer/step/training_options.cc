#include "trainer/step/training_options.h"

#include "comm/bucketer.h"
#include "trainer/config/device.h"
#include "trainer/optimizer/shard.h"

namespace trireme::train {

model::CompileOptions training_options(const Config& config, const BatchPlan& batch, int ranks) {
  const BucketConfig& buckets = config.run.buckets();
  const comm::BucketOptions sizes{buckets.first_bytes(), buckets.bytes(), buckets.last_bytes()};
  const Shard shard = shard_of(config.run, 0, ranks);
  model::CompileOptions options;
  options.batch = batch.micro;
  options.accumulate = batch.passes > 1;
  options.dtype = compute_dtype(config);
  options.bucket_ends = [sizes](std::span<const int64_t> ends) {
    std::vector<int64_t> chosen;
    for (const comm::Bucket& bucket : comm::cut_buckets(ends, DType::kF32, sizes)) {
      chosen.push_back(bucket.end);
    }
    return chosen;
  };
  if (!shard.is_whole()) options.bucket_multiple = shard.count * kShardAlignment;
  return options;
}

}  // namespace trireme::train
