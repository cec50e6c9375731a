// Mixup and CutMix: rows 2k and 2k + 1 of a global batch are mixed with each other.
#pragma once

#include <cstddef>
#include <cstdint>

#include "data/dataset.h"
#include "data/transforms/draws.h"

namespace trireme {
class MixConfig;
}  // namespace trireme

namespace trireme::data {

// From Beta(alpha, alpha), alpha > 0, as the ratio of two gamma variates (Marsaglia and Tsang, "A
// simple method for generating gamma variables", TOMS 26, 2000).
double draw_beta(double alpha, Draws& draws);

class Mix {
 public:
  // `spec`: of samples whose targets are probabilities of classes (f32 [classes]) and whose inputs
  // are u8 or f32. Throws ConfigError ("data.mix...") when the configuration cannot be followed.
  Mix(const MixConfig& config, uint64_t seed, const SampleSpec& spec);

  struct Row {
    std::byte* input = nullptr;
    std::byte* target = nullptr;
  };
  // Mixes two rows with each other, each becoming its share of itself and the rest of the other;
  // u8 to the nearest. `position`: of the first, counted from the beginning of the epoch. What
  // comes is a pure function of (config, seed, epoch, position, the two).
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
