// What files of weights call the tensors of the networks of the zoo. Ours are torchvision's
// (https://pytorch.org/vision) for ResNet, AlexNet and VGG: "layer1.0.conv1.weight".
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::model {

enum class NameStyle {
  kTrireme,      // as the layers are called
  kTorchvision,  // the same, of networks that torchvision has
  kHuggingFace,  // transformers' ResNetForImageClassification
};

// What a tensor is called in files of that style; nothing where that style has no network with a
// tensor of this name.
std::optional<std::string> name_in(NameStyle style, const std::string& ours);

// Whether the network's layers are called as in torchvision.
bool has_torchvision_names(std::string_view network);

struct NameGuess {
  std::string ours;
  NameStyle style = NameStyle::kTrireme;
};
// What the tensor that a file calls `theirs` may be in a network whose last layer with parameters
// is `head`, likeliest first: the name as it is; without prefixes that frameworks put in front
// ("module."); as Hugging Face, timm and well-known networks for CIFAR would have it.
std::vector<NameGuess> name_guesses(const std::string& theirs, const std::string& head);

// Whether it is something that PyTorch keeps with the weights and no network here has.
bool is_bookkeeping(std::string_view theirs);

}  // namespace trireme::model
