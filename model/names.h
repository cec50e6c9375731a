// Translates tensor names between Trireme and other frameworks' weight files. Trireme's names for
// ResNet, AlexNet and VGG are those of torchvision (https://pytorch.org/vision), such as
// "layer1.0.conv1.weight", and those of GPT-2 are almost those of Hugging Face's transformers.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::model {

enum class NameStyle {
  kTrireme,      // names of Trireme's layers
  kTorchvision,  // the same names, for networks that torchvision has
  kHuggingFace,  // names in transformers' ResNetForImageClassification and GPT2LMHeadModel
};

// Returns the name that files of this style use for the tensor `name`, or nullopt if the style has
// no network with such a tensor. GPT-2 is not translated to kHuggingFace.
std::optional<std::string> name_in(NameStyle style, const std::string& name);

// Returns whether the network's layers have the names that torchvision uses.
bool has_torchvision_names(std::string_view network);

struct NameGuess {
  std::string name;
  NameStyle style = NameStyle::kTrireme;
};
// Returns candidates for the Trireme name of the tensor `file_name` of a file, most likely first:
// the same name; the name without the prefixes of frameworks ("module."); the translations of names
// of Hugging Face, timm and well-known networks for CIFAR. `head` is the network's last layer with
// parameters.
std::vector<NameGuess> name_guesses(const std::string& file_name, const std::string& head);

// Returns whether a tensor is one that PyTorch stores with the weights and Trireme does not need:
// "num_batches_tracked" and the causal masks of GPT-2.
bool is_bookkeeping(const std::string& file_name);

// Returns whether the tensor `name` belongs to a layer that is a Conv1D in GPT2LMHeadModel, which
// stores it as [inputs, outputs].
bool is_conv1d_weight(std::string_view name);

}  // namespace trireme::model
