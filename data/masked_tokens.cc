#include "data/masked_tokens.h"

#include <fmt/format.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/ignored_label.h"
#include "core/random.h"
#include "data/data.pb.h"

namespace trireme::data {
namespace {

// Of the chosen tokens, the fractions that are replaced by the mask and by random tokens.
constexpr float kMaskShare = 0.8F;
constexpr float kRandomShare = 0.1F;

void check_token(const std::string& field, int64_t token, int64_t vocab_size) {
  if (token >= 0 && token < vocab_size) return;
  throw ConfigError(
      field, fmt::format("{} is not in the vocabulary of the data, [0, {})", token, vocab_size));
}

void check(const MaskConfig& config, const SampleSpec& spec) {
  if (!spec.has_token_labels() || spec.input.dtype != DType::kI32) {
    throw ConfigError("data.mask",
                      fmt::format("needs text or tokens (data.text, data.tokens); samples are {}",
                                  spec.input.to_string()));
  }
  if (!(config.probability() > 0 && config.probability() <= 1)) {
    throw ConfigError("data.mask.probability",
                      fmt::format("{} is not in (0, 1]", config.probability()));
  }
  if (config.has_token()) check_token("data.mask.token", config.token(), spec.classes);
  for (int i = 0; i < config.keep_size(); ++i) {
    check_token(fmt::format("data.mask.keep[{}]", i), config.keep(i), spec.classes);
  }
}

class MaskedTokens final : public WrappedDataset {
 public:
  MaskedTokens(std::unique_ptr<Dataset> dataset, const MaskConfig& config, uint64_t seed)
      : WrappedDataset(std::move(dataset)),
        spec_(inner().spec()),
        seed_(seed),
        vocab_size_(static_cast<uint32_t>(spec_.classes)),
        mask_(config.has_token() ? config.token() : spec_.classes),
        adds_token_(!config.has_token()),
        probability_(config.probability()),
        kept_(static_cast<size_t>(spec_.classes)) {
    for (const int32_t token : config.keep()) kept_[static_cast<size_t>(token)] = true;
    if (adds_token_) ++spec_.classes;
    spec_.bytes_per_token = 0;  // the labels are not all tokens of a text
  }

  const SampleSpec& spec() const override { return spec_; }
  void read(SampleId id, std::byte* input, std::byte* target) const override {
    inner().read(id, input, target);
    const auto length = static_cast<size_t>(spec_.input.shape[0]);
    mask(id, {reinterpret_cast<int32_t*>(input), length},
         {reinterpret_cast<int32_t*>(target), length});
  }
  std::string description() const override {
    return fmt::format("{}, of which {:g}% of the tokens are masked", inner().description(),
                       100 * probability_);
  }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names = inner().class_names();
    if (adds_token_ && !names.empty()) names.emplace_back("[MASK]");
    return names;
  }

 private:
  // Replaces some tokens, and makes them the labels.
  void mask(SampleId id, std::span<int32_t> tokens, std::span<int32_t> labels) const {
    const Random random(seed_, RandomPurpose::kMask, static_cast<uint64_t>(id.epoch));
    for (size_t t = 0; t < tokens.size(); ++t) {
      const bool padding = labels[t] == kIgnoredLabel;
      labels[t] = kIgnoredLabel;
      const Random4 r = random.four(static_cast<uint64_t>(id.index) * tokens.size() + t);
      const bool chosen = uniform(r[0]) < probability_;
      if (padding || !chosen || kept_[static_cast<size_t>(tokens[t])]) continue;
      labels[t] = tokens[t];
      const float share = uniform(r[1]);
      if (share < kMaskShare) {
        tokens[t] = mask_;
      } else if (share < kMaskShare + kRandomShare) {
        const uint32_t other = r[2] % vocab_size_;
        if (!kept_[other]) tokens[t] = static_cast<int32_t>(other);
      }
    }
  }

  SampleSpec spec_;
  const uint64_t seed_;
  const uint32_t vocab_size_;  // without an added token
  const int32_t mask_;
  const bool adds_token_;
  const float probability_;
  std::vector<bool> kept_;  // by token
};

}  // namespace

std::unique_ptr<Dataset> with_masks(std::unique_ptr<Dataset> dataset, const MaskConfig& config,
                                    uint64_t seed) {
  check(config, dataset->spec());
  return std::make_unique<MaskedTokens>(std::move(dataset), config, seed);
}

}  // namespace trireme::data
