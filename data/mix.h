// Mixup and CutMix of rows 2k and 2k + 1 of a global batch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/dataset.h"
#include "data/transforms/draws.h"

namespace trireme {
class MixConfig;
}  // namespace trireme

namespace trireme::data {

// Draws from Beta(alpha, alpha), alpha > 0, as the ratio of two gamma variates (Marsaglia and
// Tsang, "A simple method for generating gamma variables", TOMS 26, 2000).
double draw_beta(double alpha, Draws& draws);

class Mix {
 public:
  // `spec` describes the samples. Their targets must be class probabilities (f32 [classes]) and
  // their inputs u8 or f32. Throws ConfigError ("data.mix...") if the configuration is invalid.
  Mix(const MixConfig& config, uint64_t seed, const SampleSpec& spec);

  struct Row {
    std::byte* input = nullptr;
    std::byte* target = nullptr;
  };
  // Mixes two rows in place: each becomes share * itself + (1 - share) * the other, with u8 rounded
  // to nearest. `position` is the position of the first row in the epoch. The result is a pure
  // function of (config, seed, epoch, position, rows).
  void operator()(int64_t epoch, int64_t position, const Row& first, const Row& second) const;

 private:
  bool chooses_cutmix(Draws& draws) const;
  float mixup(Draws& draws, const Row& first, const Row& second) const;
  float cutmix(Draws& draws, const Row& first, const Row& second) const;

  float mixup_alpha_;
  float cutmix_alpha_;
  float probability_;
  uint64_t seed_;
  SampleSpec spec_;
};

}  // namespace trireme::data
