// A warp has a sequence. Its lanes look at tokens that are next to each other.
#include "ops/choose_layouts.h"
#include "ops/cuda/context.h"
#include "ops/cuda/plans.h"
#include "ops/cuda/reduce.h"
#include "ops/function_op.h"
#include "ops/key_ranges.h"

namespace trireme::ops::cuda {
namespace {

__global__ void __launch_bounds__(kWarpSize)
    sequence_lengths_kernel(const int32_t* tokens, int64_t length, int32_t padding,
                            int32_t* lengths) {
  tokens += blockIdx.x * length;
  int32_t end = 0;
  for (int64_t t = threadIdx.x; t < length; t += kWarpSize) {
    if (tokens[t] != padding) end = static_cast<int32_t>(t + 1);
  }
  end = warp_reduce(end, [](int32_t a, int32_t b) { return a > b ? a : b; });
  if (threadIdx.x == 0) lengths[blockIdx.x] = end;
}

// `part_starts` and `cache` may be null.
__global__ void __launch_bounds__(kWarpSize)
    document_starts_kernel(const int32_t* tokens, int64_t length, int32_t end,
                           const int32_t* part_starts, int64_t positions, int32_t* cache,
                           int32_t* starts) {
  const int lane = static_cast<int>(threadIdx.x);
  const int64_t sample = blockIdx.x, begin = part_starts ? part_starts[sample] : 0;
  tokens += sample * length;
  starts += sample * length;
  if (cache) cache += sample * positions;
  int32_t before = begin > 0 && begin <= positions ? cache[begin - 1] : 0;
  __syncwarp();  // lane 0 may write what the others read
  for (int64_t first = 0; first < length; first += kWarpSize) {
    const int64_t t = first + lane;
    const unsigned ends = __ballot_sync(kAllLanes, t < length && tokens[t] == end);
    // Returns the start of the document after the last end in `lanes`.
    const auto start_after = [&](unsigned lanes) {
      const unsigned in = ends & lanes;
      if (in == 0) return before;
      return static_cast<int32_t>(begin + first + kWarpSize - __clz(static_cast<int>(in)));
    };
    const unsigned earlier = (1u << lane) - 1;
    if (t < length) starts[t] = start_after(earlier);
    if (t < length && begin + t < positions) cache[begin + t] = start_after(earlier | 1u << lane);
    before = start_after(kAllLanes);
  }
}

__global__ void __launch_bounds__(kWarpSize)
    segment_ids_kernel(const int32_t* tokens, int64_t length, int32_t end, int32_t segments,
                       int32_t* ids) {
  const int lane = static_cast<int>(threadIdx.x);
  tokens += blockIdx.x * length;
  ids += blockIdx.x * length;
  int before = 0;
  for (int64_t first = 0; first < length; first += kWarpSize) {
    const int64_t t = first + lane;
    const unsigned ends = __ballot_sync(kAllLanes, t < length && tokens[t] == end);
    const int segment = before + __popc(ends & ((1u << lane) - 1));
    if (t < length) ids[t] = segment < segments ? segment : segments - 1;
    before += __popc(ends);
  }
}

// A warp for each sample.
trireme::cuda::Grid sample_grid(const Shape& tokens) {
  return {.blocks = dim3(static_cast<unsigned>(tokens[0])), .threads = dim3(kWarpSize)};
}

}  // namespace

Plan plan(const SequenceLengths& op, const ContextPtr&, Specs given) {
  using Op = SequenceLengths;
  const Shape shape = given[Op::kTokens].shape;
  return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
    trireme::cuda::launch("sequence_lengths", sequence_lengths_kernel, sample_grid(shape), stream,
                          pointer<int32_t>(args, Op::kTokens), shape[1], op.padding,
                          pointer<int32_t>(args, Op::kLengths));
  });
}

Plan plan(const DocumentStarts& op, const ContextPtr&, Specs given) {
  using Op = DocumentStarts;
  const Shape shape = given[Op::kTokens].shape;
  const int64_t positions = is_absent(given[Op::kCache]) ? 0 : given[Op::kCache].shape[1];
  return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
    trireme::cuda::launch("document_starts", document_starts_kernel, sample_grid(shape), stream,
                          pointer<int32_t>(args, Op::kTokens), shape[1], op.end,
                          pointer<int32_t>(args, Op::kPartStarts), positions,
                          pointer<int32_t>(args, Op::kCache), pointer<int32_t>(args, Op::kStarts));
  });
}

Plan plan(const SegmentIds& op, const ContextPtr&, Specs given) {
  using Op = SegmentIds;
  const Shape shape = given[Op::kTokens].shape;
  return function_op(in_row_major(given), [=](Stream& stream, Args args, void*) {
    trireme::cuda::launch("segment_ids", segment_ids_kernel, sample_grid(shape), stream,
                          pointer<int32_t>(args, Op::kTokens), shape[1], op.end, op.segments,
                          pointer<int32_t>(args, Op::kSegments));
  });
}

}  // namespace trireme::ops::cuda
