// What the transformers of the zoo have in common.
#pragma once

#include <fmt/format.h>

#include <string>

#include "core/error.h"
#include "model/zoo/builder.h"
#include "model/zoo/zoo.h"

namespace trireme::model {

inline constexpr float kInitialStddev = 0.02F;  // as in GPT-2, BERT and vision transformers

inline constexpr int64_t kMaxFeatures = 1 << 20;

// Throws ConfigError that names the field unless the value is in [1, max].
void require_between(const char* field, int64_t value, int64_t max);

// Returns the size of the name with the options applied. Throws ConfigError if it is invalid.
TransformerSize size_of(TransformerSize size, const ZooConfig& options);

void set_normal(InitializerConfig& init, float stddev);

// Adds the layers of residual blocks.
class TransformerBuilder {
 public:
  // `branch_stddev` is the standard deviation of the initial weights of the last dense layer of a
  // residual branch.
  TransformerBuilder(const std::string& name, const ZooConfig& options, float branch_stddev)
      : net_(name, options), options_(options), branch_stddev_(branch_stddev) {}

  EmbeddingConfig& embedding(const std::string& name, int64_t width);
  // An embedding with learned positions.
  EmbeddingConfig& embedding_with_positions(const std::string& name, int64_t width);
  DenseConfig& dense(const std::string& name, int64_t units, bool bias,
                     float stddev = kInitialStddev);
  // The last layer of a residual branch, followed by dropout and the sum with what the branch
  // reads.
  void residual(const std::string& name, int64_t units, bool bias, const std::string& branch,
                const std::string& from);
  void dropout(const std::string& name) {
    if (options_.dropout() > 0) net_.dropout(name, options_.dropout());
  }
  // `epsilon` is the default of the network.
  void layer_norm(const std::string& name, float epsilon) {
    net_.layer(name).mutable_layer_norm()->set_epsilon(epsilon_or(epsilon));
  }
  void rms_norm(const std::string& name, float epsilon) {
    net_.layer(name).mutable_rms_norm()->set_epsilon(epsilon_or(epsilon));
  }
  NetworkBuilder& net() { return net_; }

 private:
  float epsilon_or(float unset) const {
    return options_.has_norm_epsilon() ? options_.norm_epsilon() : unset;
  }

  NetworkBuilder net_;
  ZooConfig options_;
  float branch_stddev_;
};

}  // namespace trireme::model
