// Translates tensor names between Trireme and other frameworks' weight files. Trireme's names for
// ResNet, AlexNet and VGG are those of torchvision (https://pytorch.org/vision), such as
// "layer1.0.conv1.weight", those of GPT-2, Llama and BERT almost those of Hugging Face's
// transformers, and those of vision transformers almost those of timm.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/shape.h"

namespace trireme::model {

enum class NameStyle {
  kTrireme,      // names of Trireme's layers
  kTorchvision,  // the same names, for networks that torchvision has
  // Names in transformers' ResNetForImageClassification, GPT2LMHeadModel, LlamaForCausalLM,
  // ViTForImageClassification, BertForSequenceClassification and BertForMaskedLM.
  kHuggingFace,
};

// Returns the name that files of this style use for the tensor `name` of the network, or nullopt if
// the style has no network with such a tensor. GPT-2 is not translated to kHuggingFace. What
// Trireme stores as one tensor, such as "x.qkv.weight", has one name; see parts_of.
std::optional<std::string> name_in(NameStyle style, std::string_view network,
                                   const std::string& name);
// Returns the shape that files of this style use for the tensor `name`: that of Trireme, with
// dimensions of 1 in front if the style has them.
Shape shape_in(NameStyle style, const std::string& name, const Shape& shape);

// Some rows of a tensor that transformers stores under a name of their own.
struct Part {
  std::string name;
  int64_t rows = 0;
};
// Returns the parts of the tensor `file_name` of this shape, in order: query, key and value of
// "x.qkv.weight" or "x.qkv_proj.weight" (of which the query has as many rows as columns, and key
// and value equally many), gate and up of "x.gate_up_proj.weight". Empty for tensors that are
// stored whole.
std::vector<Part> parts_of(const std::string& file_name, const Shape& shape);
// A tensor and the names of its parts, the first of which is `file_name`; nullopt if that is the
// first part of none.
struct JoinedName {
  std::string name;
  std::vector<std::string> parts;
};
std::optional<JoinedName> joined_name(const std::string& file_name);

bool is_llama(std::string_view network);
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
// "num_batches_tracked", the causal masks of GPT-2, the positions of BERT and the frequencies of
// Llama.
bool is_bookkeeping(const std::string& file_name);

// Returns the name of the head of BERT that the tensor `name` belongs to, "pooler." or
// "cls.", or an empty text if it belongs to none. A file may have heads that a network has not, and
// the other way round.
std::string_view bert_head_of(std::string_view name);

// Returns whether the tensor `name` belongs to a layer that is a Conv1D in GPT2LMHeadModel, which
// stores it as [inputs, outputs].
bool is_conv1d_weight(std::string_view name);

}  // namespace trireme::model
