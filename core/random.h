// Stateless random numbers: Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as
// easy as 1, 2, 3", SC 2011). A number is a pure function of (seed, purpose, stream, index), the
// same on every device, so that training can resume on any machine with any number of ranks and
// threads.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <string_view>

namespace trireme {

enum class RandomPurpose : uint32_t {
  kInitialize = 1,
  kShuffle = 2,
  kDropout = 3,
  kAugment = 4,
  kSynthetic = 5,
  kSplit = 6,
  kSampling = 7,
  kMask = 8,
  kTokenDropout = 9,
  kSynonym = 10,
};

using Random4 = std::array<uint32_t, 4>;

constexpr void philox_round(Random4& counter, std::array<uint32_t, 2>& key) {
  const uint64_t a = uint64_t{0xD2511F53} * counter[0];
  const uint64_t b = uint64_t{0xCD9E8D57} * counter[2];
  counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
             static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
  key[0] += 0x9E3779B9;
  key[1] += 0xBB67AE85;
}

// Returns the Philox4x32-10 block of the counter. Unrolled so that compilers can vectorize a loop
// over it.
constexpr Random4 philox(Random4 counter, std::array<uint32_t, 2> key) {
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  philox_round(counter, key);
  return counter;
}

// Mixes the bits of a 64-bit number. A bijection (the finalizer of MurmurHash3 with constants by D.
// Stafford).
constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EB;
  return x ^ (x >> 31);
}

// Returns a stable hash of a name, e.g. of a parameter (FNV-1a).
constexpr uint64_t name_hash(std::string_view name) {
  uint64_t hash = 0xCBF29CE484222325;
  for (char c : name) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3;
  return hash;
}

// Maps random bits to a uniform number in [0, 1) with 24 bits of precision.
constexpr float uniform(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Random numbers for one purpose. `stream` selects an independent sequence for the same purpose,
// e.g. an epoch, a step, or the name_hash of a parameter.
class Random {
 public:
  constexpr Random(uint64_t seed, RandomPurpose purpose, uint64_t stream = 0) : stream_(stream) {
    const uint64_t key = mix64(seed ^ (uint64_t{static_cast<uint32_t>(purpose)} << 56));
    key_ = {static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32)};
  }

  // Returns the index-th group of four numbers.
  constexpr Random4 four(uint64_t index) const {
    return philox({static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32),
                   static_cast<uint32_t>(stream_), static_cast<uint32_t>(stream_ >> 32)},
                  key_);
  }
  constexpr uint32_t bits(uint64_t index) const { return four(index / 4)[index % 4]; }
  constexpr float uniform_at(uint64_t index) const { return uniform(bits(index)); }

  // Returns a standard normal number (Box-Muller on the first two numbers of the index-th group).
  float normal_at(uint64_t index) const {
    const Random4 r = four(index);
    const double u = (static_cast<double>(r[0]) + 1.0) * 0x1p-32;  // in (0, 1]
    const double v = static_cast<double>(r[1]) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(2.0 * std::numbers::pi * v));
  }

 private:
  std::array<uint32_t, 2> key_{};
  uint64_t stream_;
};

}  // namespace trireme
