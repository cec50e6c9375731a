// VGG (Simonyan and Zisserman, arXiv:1409.1556), with the layer names and initialization of
// torchvision.
#include <fmt/format.h>

#include <vector>

#include "core/error.h"
#include "model/zoo/builder.h"
#include "model/zoo/zoo.h"

namespace trireme::model {
namespace {

constexpr int64_t kReduction = 32;  // of height and width by the five poolings
constexpr int64_t kPooled = 7;      // height and width that the classifier reads

// Returns the height or width after the convolutions; each pooling rounds down. Throws ConfigError
// unless it is a multiple of kPooled.
int64_t reduced(const ModelInput& input, int side) {
  const Shape& shape = input.input.shape;
  if (shape.rank() != 3) {
    throw ConfigError("model.zoo.name",
                      fmt::format("VGG needs images [C, H, W], got {}", shape.to_string()));
  }
  const int64_t size = shape[side] / kReduction;
  if (size > 0 && size % kPooled == 0) return size;
  throw ConfigError(
      "model.zoo.name",
      fmt::format("VGG cannot pool images of {} x {} to 7 x 7: height and width must be "
                  "224, 448, ... (up to 31 more); resize or crop them (data.transform)",
                  shape[1], shape[2]));
}

class VggBuilder {
 public:
  VggBuilder(const std::string& name, const ZooConfig& options, bool norm)
      : options_(options), net_(name, options), norm_(norm) {}

  // Builds five groups of 3x3 convolutions, each with twice as many channels as the one before, up
  // to 512, and the classifier.
  NetworkConfig build(const std::vector<int>& counts, const ModelInput& input) {
    int64_t channels = 64;
    for (int count : counts) {
      for (int i = 0; i < count; ++i) convolution(channels);
      net_.max_pool(feature(), 2, 2);
      channels = std::min<int64_t>(512, channels * 2);
    }
    average(input);
    classifier();
    return net_.finish();
  }

 private:
  std::string feature() { return fmt::format("features.{}", features_++); }

  void convolution(int64_t channels) {
    Conv2dConfig& config = net_.conv(feature(), channels, 3, 1, 1);
    config.mutable_weight_init()->mutable_kaiming_normal()->set_fan_out(true);
    config.mutable_bias_init()->mutable_constant();
    if (norm_) net_.norm(feature());
    net_.relu(feature());
  }

  void average(const ModelInput& input) {
    const int64_t height = reduced(input, 1) / kPooled;
    const int64_t width = reduced(input, 2) / kPooled;
    if (height == 1 && width == 1) return;
    PoolConfig& pool = *net_.layer("avgpool").mutable_average_pool();
    pool.add_kernel(height);
    pool.add_kernel(width);
  }

  void dense(const char* name, int64_t units) {
    DenseConfig& config = *net_.layer(name).mutable_dense();
    config.set_units(units);
    config.mutable_weight_init()->mutable_normal()->set_std(0.01f);
    config.mutable_bias_init()->mutable_constant();
  }

  void classifier() {
    const float rate = options_.has_dropout() ? options_.dropout() : 0.5f;
    net_.layer("flatten").mutable_flatten();
    dense("classifier.0", 4096);
    net_.relu("classifier.1");
    net_.dropout("classifier.2", rate);
    dense("classifier.3", 4096);
    net_.relu("classifier.4");
    net_.dropout("classifier.5", rate);
    dense("classifier.6", options_.classes());
  }

  ZooConfig options_;
  NetworkBuilder net_;
  bool norm_;
  int features_ = 0;
};

}  // namespace

NetworkConfig Vgg::operator()(const std::string& name, const ZooConfig& options,
                              const ModelInput& input) const {
  return VggBuilder(name, options, norm).build(convolutions, input);
}

}  // namespace trireme::model
