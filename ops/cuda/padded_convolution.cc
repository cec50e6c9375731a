#include "ops/cuda/padded_convolution.h"

#include <array>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "core/alignment.h"
#include "ops/cuda/copy_columns.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/libraries.h"

namespace trireme::ops::cuda {
namespace {

constexpr int kPixelBytes = 16;

// Copies a channels-last tensor [rows, C, ...] to one with another number of channels.
void copy_channels(Stream& stream, DType dtype, const void* from, const Shape& from_shape, void* to,
                   const Shape& to_shape) {
  copy_columns(stream, dtype, from, from_shape.elements() / from_shape[1], from_shape[1], to,
               to_shape[1]);
}

class Padded final : public Algorithm {
 public:
  Padded(AlgorithmPtr algorithm, const Convolution& given, const Convolution& padded)
      : algorithm_(std::move(algorithm)), given_(given), padded_(padded) {
    const std::vector<size_t> sizes = bytes(padded);
    x_bytes_ = device_aligned(sizes[0]);
    weight_bytes_ = device_aligned(sizes[1]);
  }

  size_t workspace_bytes() const override {
    return x_bytes_ + weight_bytes_ + algorithm_->workspace_bytes();
  }

  void run(Stream& stream, Args args, void* workspace) const override {
    const auto [x, weight, y, bias] = std::array{args[0], args[1], args[2], args[3]};
    auto* const padded_x = static_cast<std::byte*>(workspace);
    std::byte* const padded_weight = padded_x + x_bytes_;
    const bool forward = given_.pass == ConvolutionPass::kForward;
    copy_channels(stream, given_.in, x, given_.x, padded_x, padded_.x);
    if (forward) {
      copy_channels(stream, given_.in, weight, given_.weight, padded_weight, padded_.weight);
    }
    algorithm_->run(stream, std::array<void*, 4>{padded_x, padded_weight, y, bias},
                    padded_weight + weight_bytes_);
    if (!forward) {
      copy_channels(stream, given_.out, padded_weight, padded_.weight, weight, given_.weight);
    }
  }

 private:
  AlgorithmPtr algorithm_;
  Convolution given_, padded_;
  size_t x_bytes_ = 0, weight_bytes_ = 0;
};

// Returns null if there is no algorithm.
AlgorithmPtr find_padded(const Context& context, const Convolution& given) {
  const int64_t pixel = kPixelBytes / static_cast<int64_t>(size_of(given.in));
  Convolution padded = given;
  padded.x[1] = padded.weight[1] = (given.x[1] + pixel - 1) / pixel * pixel;
  AlgorithmPtr algorithm = find_or_null(find_convolution, context, padded);
  if (!algorithm) return nullptr;
  auto found = std::make_shared<const Padded>(std::move(algorithm), given, padded);
  return found->workspace_bytes() <= size_t{kWorkspaceLimit} ? found : nullptr;
}

}  // namespace

AlgorithmPtr find_convolution_or_padded(const Context& context, const Convolution& given) {
  const bool whole_pixels = static_cast<size_t>(given.x[1]) * size_of(given.in) % kPixelBytes == 0;
  const bool tensor_cores = given.in != DType::kF32 || given.tf32;
  if (whole_pixels || !tensor_cores || given.geometry.groups != 1) {
    return find_convolution(context, given);
  }
  return context.libraries->engines.choose(key(given) + ", padded or not", bytes(given), [&] {
    return std::vector<Candidate>{
        {"not padded", [&] { return find_or_null(find_convolution, context, given); }},
        {"padded", [&] { return find_padded(context, given); }}};
  });
}

}  // namespace trireme::ops::cuda
