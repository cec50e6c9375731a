// Residual networks (He et al., arXiv:1512.03385), with the layer names and initialization of
// torchvision.
#include <fmt/format.h>

#include <vector>

#include "model/zoo/builder.h"
#include "model/zoo/zoo.h"

namespace trireme::model {
namespace {

class ResNetBuilder {
 public:
  ResNetBuilder(const std::string& name, const ZooConfig& options)
      : options_(options), net_(name, options) {}

  void imagenet_stem() {
    conv("conv1", 64, 7, 2, 3);
    net_.norm("bn1");
    net_.relu("relu");
    net_.max_pool("maxpool", 3, 2, 1);
    channels_ = 64;
  }
  void cifar_stem(int64_t width) {
    conv("conv1", width, 3, 1, 1);
    net_.norm("bn1");
    net_.relu("relu");
    channels_ = width;
  }
  // Adds `counts[i]` blocks for stage i. Each stage has twice as many channels as the one before
  // and, except for the first, half the height and width.
  NetworkConfig stages(const std::vector<int>& counts, int64_t width, bool bottleneck) {
    for (size_t stage = 0; stage < counts.size(); ++stage) {
      for (int i = 0; i < counts[stage]; ++i) {
        block(fmt::format("layer{}.{}", stage + 1, i), width << stage, stage > 0 && i == 0 ? 2 : 1,
              bottleneck);
      }
    }
    net_.layer("avgpool").mutable_global_pool();
    net_.layer("flatten").mutable_flatten();
    net_.dense("fc", options_.classes());
    return net_.finish();
  }

 private:
  void conv(const std::string& name, int64_t channels, int64_t kernel, int64_t stride,
            int64_t padding, std::initializer_list<std::string> inputs = {}) {
    Conv2dConfig& config = net_.conv(name, channels, kernel, stride, padding, inputs);
    config.set_bias(false);
    config.mutable_weight_init()->mutable_kaiming_normal()->set_fan_out(true);
  }

  // Adds a basic block, or a bottleneck with the stride in its 3x3 convolution.
  void block(const std::string& name, int64_t width, int64_t stride, bool bottleneck) {
    const std::string in = net_.last();
    const int64_t out = bottleneck ? width * 4 : width;
    std::string skip = in;
    if (stride != 1 || channels_ != out) {
      conv(name + ".downsample.0", out, 1, stride, 0);
      net_.norm(name + ".downsample.1");
      skip = name + ".downsample.1";
    }
    if (bottleneck) {
      conv(name + ".conv1", width, 1, 1, 0, {in});
      net_.norm(name + ".bn1");
      net_.relu(name + ".relu1");
      conv(name + ".conv2", width, 3, stride, 1);
      net_.norm(name + ".bn2");
      net_.relu(name + ".relu2");
      conv(name + ".conv3", out, 1, 1, 0);
      net_.norm(name + ".bn3");
    } else {
      conv(name + ".conv1", width, 3, stride, 1, {in});
      net_.norm(name + ".bn1");
      net_.relu(name + ".relu1");
      conv(name + ".conv2", out, 3, 1, 1);
      net_.norm(name + ".bn2");
    }
    net_.layer(name + ".add", {net_.last(), skip}).mutable_add();
    net_.relu(name + ".relu");
    channels_ = out;
  }

  ZooConfig options_;
  NetworkBuilder net_;
  int64_t channels_ = 0;
};

}  // namespace

NetworkConfig ResNet::operator()(const std::string& name, const ZooConfig& options,
                                 const ModelInput&) const {
  ResNetBuilder net(name, options);
  cifar_stem ? net.cifar_stem(width) : net.imagenet_stem();
  return net.stages(blocks, width, bottleneck);
}

}  // namespace trireme::model
