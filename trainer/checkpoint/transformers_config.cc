#include "trainer/checkpoint/transformers_config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "trainer/base/json.h"

namespace trireme::train {
namespace {

using Json = nlohmann::json;

// A kind of network of transformers, and what it computes where config.json has no entry.
struct Family {
  std::string_view type;  // model_type
  std::string_view heads = "num_attention_heads";
  std::string_view epsilon = "layer_norm_eps";
  std::string_view activation = "hidden_act";
  double default_heads = 12;
  double default_epsilon = 1e-12;
  std::string_view default_activation = "gelu";
  bool causal = false;
  bool rotary = false;
  double default_kv_heads = 0;  // 0: as many as heads
  double default_window = 0;    // 0: none
};

constexpr Family kFamilies[] = {{.type = "gpt2",
                                 .heads = "n_head",
                                 .epsilon = "layer_norm_epsilon",
                                 .activation = "activation_function",
                                 .default_epsilon = 1e-5,
                                 .default_activation = "gelu_new",
                                 .causal = true},
                                {.type = "llama",
                                 .epsilon = "rms_norm_eps",
                                 .default_heads = 32,
                                 .default_epsilon = 1e-6,
                                 .default_activation = "silu",
                                 .causal = true,
                                 .rotary = true},
                                {.type = "mistral",
                                 .epsilon = "rms_norm_eps",
                                 .default_heads = 32,
                                 .default_epsilon = 1e-6,
                                 .default_activation = "silu",
                                 .causal = true,
                                 .rotary = true,
                                 .default_kv_heads = 8,
                                 .default_window = 4096},
                                {.type = "bert"},
                                {.type = "vit"},
                                {.type = "resnet", .default_activation = "relu"}};

// Names of activations in transformers, and the layers that compute them.
struct ActivationName {
  std::string_view theirs, ours;
};
constexpr ActivationName kActivations[] = {
    {"gelu", "gelu"},           {"gelu_python", "gelu"},
    {"gelu_new", "gelu_tanh"},  {"gelu_pytorch_tanh", "gelu_tanh"},
    {"gelu_fast", "gelu_tanh"}, {"gelu_accurate", "gelu_tanh"},
    {"silu", "silu"},           {"swish", "silu"},
    {"relu", "relu"},           {"sigmoid", "sigmoid"}};

// Entries that must have this value, or none, since Trireme computes nothing else.
struct Required {
  std::string_view entry;
  const char* value;  // JSON
};
constexpr Required kRequired[] = {{"scale_attn_weights", "true"},
                                  {"scale_attn_by_inverse_layer_idx", "false"},
                                  {"add_cross_attention", "false"},
                                  {"is_encoder_decoder", "false"},
                                  {"position_embedding_type", "\"absolute\""},
                                  {"downsample_in_first_stage", "false"},
                                  {"downsample_in_bottleneck", "false"},
                                  {"partial_rotary_factor", "1"},
                                  {"attn_logit_softcapping", "null"},
                                  {"final_logit_softcapping", "null"},
                                  {"query_pre_attn_scalar", "null"},
                                  {"attention_multiplier", "null"},
                                  {"logit_scale", "1"},
                                  {"logits_scaling", "1"},
                                  {"embedding_multiplier", "1"},
                                  {"residual_multiplier", "1"},
                                  {"use_qk_norm", "false"},
                                  {"qk_layernorm", "false"},
                                  {"clip_qkv", "null"},
                                  {"alibi", "false"},
                                  {"attention_chunk_size", "null"},
                                  {"pruned_heads", "{}"},
                                  {"quantization_config", "null"}};

// Entries that do not change what is computed, or only by sizes of tensors, which are compared
// where the tensors are read. Between spaces.
constexpr std::string_view kNeutral =
    " architectures attention_bias auto_map chunk_size_feed_forward depths directionality "
    "dtype embedding_size encoder_stride finetuning_task gradient_checkpointing head_dim "
    "hidden_size hidden_sizes id2label image_size initializer_factor initializer_range "
    "intermediate_size label2id layer_type max_length max_position_embeddings min_length "
    "mlp_bias model_type n_ctx n_embd n_inner n_layer n_positions num_channels "
    "num_hidden_layers num_labels out_features out_indices output_attentions "
    "output_hidden_states output_past patch_size "
    "predict_special_tokens pretraining_tp problem_type qkv_bias reorder_and_upcast_attn "
    "return_dict stage_names task_specific_params tie_word_embeddings tokenizer_class "
    "torch_dtype torchscript transformers_version type_vocab_size use_bfloat16 use_cache "
    "use_return_dict vocab_size ";

// Entries that Comparison reads.
constexpr std::string_view kCompared[] = {
    "num_key_value_heads", "is_decoder",         "layer_types",
    "rope_parameters",     "rope_scaling",       "rope_theta",
    "sliding_window",      "use_sliding_window", "num_attention_heads"};

bool is_neutral(std::string_view entry) {
  return kNeutral.find(fmt::format(" {} ", entry)) != kNeutral.npos || entry.starts_with('_') ||
         entry.find("dropout") != entry.npos || entry.ends_with("_pdrop") ||
         entry.ends_with("token_id") || entry.starts_with("summary_") ||
         entry.starts_with("pooler_");
}

bool nearly_same(double a, double b) { return std::abs(a - b) <= 1e-5 * std::abs(b); }

// Returns the activation of an MLP; "" for other layers. The tanh of BERT's pooler is none.
std::string_view activation_of(const LayerConfig& layer) {
  if (layer.has_swiglu()) return "silu";
  for (const ActivationName& name : kActivations) {
    const auto* field = LayerConfig::descriptor()->FindFieldByName(std::string(name.ours));
    if (LayerConfig::GetReflection()->HasField(layer, field)) return name.ours;
  }
  return "";
}

const Family* find_family(const Json& type) {
  const auto* found = std::ranges::find_if(
      kFamilies, [&](const Family& family) { return type == std::string(family.type); });
  return found == std::end(kFamilies) ? nullptr : found;
}

// Compares the entries with a network, and lists those that differ.
class Comparison {
 public:
  Comparison(const Json& entries, const Family& family, const NetworkConfig& network,
             int64_t length, bool zoo)
      : entries_(entries), family_(family), network_(network), length_(length), zoo_(zoo) {}

  std::vector<std::string> problems() {
    for (const Required& required : kRequired) {
      const Json* value = find(required.entry);
      if (value && *value != Json::parse(required.value)) {
        refuse(required.entry, *value,
               fmt::format("Trireme computes only what {} means", required.value));
      }
    }
    compare_attention();
    compare_epsilon();
    compare_activation();
    compare_window();
    if (family_.rotary) compare_rotary();
    return std::move(problems_);
  }

 private:
  // Returns an entry that is there and not null.
  const Json* find(std::string_view entry) const { return find(entries_, entry); }
  static const Json* find(const Json& object, std::string_view entry) {
    if (!object.is_object()) return nullptr;
    const auto found = object.find(entry);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  }
  // Returns a number; `unset` if there is no such entry. Lists it if it is not a number.
  double number(const Json& object, std::string_view entry, double unset) {
    const Json* value = find(object, entry);
    if (!value) return unset;
    if (value->is_number()) return value->get<double>();
    problems_.push_back(
        fmt::format("'{}' is {}, but must be a number", entry, printable(json_text(*value))));
    return unset;
  }
  void refuse(std::string_view entry, const Json& value, const std::string& why) {
    const bool given = entry.find('.') != entry.npos || find(entry);  // nested ones are there
    const std::string text =
        value.is_number() ? fmt::format("{:g}", value.get<double>()) : printable(json_text(value));
    problems_.push_back(
        given ? fmt::format("'{}' is {}, but {}", entry, text, why)
              : fmt::format("'{}' is missing, for which transformers takes {}, but {}", entry, text,
                            why));
  }
  // Lists an entry unless the network's field has the same value. `field` is that of the layer, and
  // `option` that of the zoo, or "" if it has none.
  void require(std::string_view entry, double theirs, const LayerConfig& layer,
               std::string_view field, double ours, std::string_view option) {
    if (nearly_same(theirs, ours)) return;
    std::string hint;
    if (zoo_ && !option.empty()) hint = fmt::format(" (set model.zoo.{}: {:g})", option, theirs);
    refuse(entry, Json(theirs),
           fmt::format("{} of layer '{}' is {:g}{}", field, layer.name(), ours, hint));
  }

  // Returns the first layer for which `differs` is true, since the others usually differ, too.
  template <class Differs>
  const LayerConfig* first(Differs differs) const {
    const auto found = std::ranges::find_if(network_.layer(), differs);
    return found == network_.layer().end() ? nullptr : &*found;
  }

  void compare_attention() {
    const bool renamed = !find(family_.heads) && find("num_attention_heads");
    const std::string_view entry = renamed ? "num_attention_heads" : family_.heads;
    const double heads = number(entries_, entry, family_.default_heads);
    const double unset = family_.default_kv_heads > 0 ? family_.default_kv_heads : heads;
    const double kv_heads = number(entries_, "num_key_value_heads", unset);
    const auto ours = [](const AttentionConfig& attention) {
      return static_cast<double>(attention.has_kv_heads() ? attention.kv_heads()
                                                          : attention.heads());
    };
    const auto has_other_heads = [&](const LayerConfig& layer) {
      return layer.has_attention() && static_cast<double>(layer.attention().heads()) != heads;
    };
    const auto has_other_kv_heads = [&](const LayerConfig& layer) {
      return layer.has_attention() && ours(layer.attention()) != kv_heads;
    };
    if (const LayerConfig* layer = first(has_other_heads)) {
      require(entry, heads, *layer, "attention.heads",
              static_cast<double>(layer->attention().heads()), "heads");
    }
    if (const LayerConfig* layer = first(has_other_kv_heads); layer && family_.rotary) {
      require("num_key_value_heads", kv_heads, *layer, "attention.kv_heads",
              ours(layer->attention()), "kv_heads");
    }
    const Json* decoder = find("is_decoder");
    const bool causal = family_.causal || (decoder && *decoder == true);
    const auto has_other_mask = [&](const LayerConfig& layer) {
      return layer.has_attention() && layer.attention().causal() != causal;
    };
    if (const LayerConfig* layer = first(has_other_mask)) {
      refuse(decoder ? "is_decoder" : "model_type", decoder ? *decoder : Json(family_.type),
             fmt::format("attention.causal of layer '{}' is {}", layer->name(), !causal));
    }
  }

  static std::optional<float> epsilon_of(const LayerConfig& layer) {
    if (layer.has_layer_norm()) return layer.layer_norm().epsilon();
    if (layer.has_rms_norm()) return layer.rms_norm().epsilon();
    return std::nullopt;
  }
  void compare_epsilon() {
    const double epsilon = number(entries_, family_.epsilon, family_.default_epsilon);
    const LayerConfig* layer = first([&](const LayerConfig& one) {
      const auto ours = epsilon_of(one);
      return ours && !nearly_same(epsilon, double{*ours});
    });
    if (!layer) return;
    require(family_.epsilon, epsilon, *layer,
            layer->has_layer_norm() ? "layer_norm.epsilon" : "rms_norm.epsilon",
            double{*epsilon_of(*layer)}, "norm_epsilon");
  }

  void compare_activation() {
    const Json* value = find(family_.activation);
    const Json theirs = value ? *value : Json(family_.default_activation);
    const auto* known = std::ranges::find_if(kActivations, [&](const ActivationName& name) {
      return theirs == std::string(name.theirs);
    });
    if (known == std::end(kActivations)) {
      return refuse(family_.activation, theirs, "Trireme has no such activation");
    }
    const LayerConfig* layer = first([&](const LayerConfig& one) {
      const std::string_view ours = activation_of(one);
      return !ours.empty() && ours != known->ours;
    });
    if (!layer) return;
    refuse(family_.activation, theirs,
           fmt::format("layer '{}' computes {}", layer->name(), activation_of(*layer)));
  }

  // Attention to the last tokens only is the same for samples that are not longer.
  void compare_window() {
    const Json* used = find("use_sliding_window");
    if (used && *used == false) return;
    const Json* given = find("sliding_window");
    const bool is_null = entries_.contains("sliding_window") && !given;
    const double window = is_null ? 0 : number(entries_, "sliding_window", family_.default_window);
    if (window > 0 && static_cast<double>(length_) > window) {
      refuse("sliding_window", Json(window),
             fmt::format("the network attends to all tokens of samples of {}; shorten the samples "
                         "to at most {:g}",
                         length_, window));
    }
    const Json* types = find("layer_types");
    if (!types || !types->is_array()) return;
    for (const Json& type : *types) {
      if (type == "full_attention" || (type == "sliding_attention" && window > 0)) continue;
      return refuse("layer_types", type, "Trireme computes only full_attention");
    }
  }

  // Before transformers 5, `rope_parameters` was `rope_theta` and `rope_scaling`.
  void compare_rotary() {
    Json rope = entries_.value("rope_parameters", Json());
    std::string prefix = "rope_parameters.";
    if (!rope.is_object()) {
      rope = entries_.value("rope_scaling", Json());
      prefix = "rope_scaling.";
    }
    for (const char* entry : {"rope_type", "type"}) {
      const Json* type = find(rope, entry);
      if (!type || *type == "default") continue;
      return refuse(prefix + entry, *type,
                    "Trireme computes only rotary positions of type default");
    }
    if (const Json* part = find(rope, "partial_rotary_factor"); part && *part != 1) {
      refuse(prefix + "partial_rotary_factor", *part, "Trireme rotates whole heads");
    }
    const bool nested = find(rope, "rope_theta") != nullptr;
    const double base =
        nested ? number(rope, "rope_theta", 0) : number(entries_, "rope_theta", 1e4);
    const std::string entry = (nested ? prefix : "") + "rope_theta";
    const auto differs = [&](const LayerConfig& layer) {
      const AttentionConfig& attention = layer.attention();
      return layer.has_attention() &&
             (!attention.has_rotary() || !nearly_same(base, attention.rotary().base()));
    };
    const LayerConfig* layer = first(differs);
    if (!layer) return;
    if (!layer->attention().has_rotary()) {
      return refuse(entry, Json(base),
                    fmt::format("attention.rotary of layer '{}' is not set", layer->name()));
    }
    require(entry, base, *layer, "attention.rotary.base", layer->attention().rotary().base(),
            "rotary_base");
  }

  const Json& entries_;
  const Family& family_;
  const NetworkConfig& network_;
  int64_t length_;
  bool zoo_;
  std::vector<std::string> problems_;
};

// Returns the entries that have a value and are neither compared nor known to change nothing.
std::vector<std::string> unknown_entries(const Json& entries, const Family& family) {
  std::vector<std::string> unknown;
  for (const auto& [entry, value] : entries.items()) {
    const bool compared =
        std::ranges::find(kCompared, entry) != std::end(kCompared) ||
        std::ranges::find(kRequired, entry, &Required::entry) != std::end(kRequired) ||
        entry == family.heads || entry == family.epsilon || entry == family.activation;
    const bool unset = value.is_null() || value == false;
    if (!compared && !unset && !is_neutral(entry)) unknown.push_back(printable(entry, 60));
  }
  return unknown;
}

}  // namespace

TransformersConfig::TransformersConfig(const std::filesystem::path& path) : path_(path) {
  try {
    entries_ = std::make_shared<const Json>(parse_json(read_text(path)));
  } catch (const Json::exception& error) {
    throw DataError(path.string(), fmt::format("is damaged: {}", json_problem(error)));
  }
  if (!entries_->is_object()) throw DataError(path.string(), "is not a JSON object");
}

std::vector<std::string> TransformersConfig::class_names() const {
  const auto found = entries_->find("id2label");
  if (found == entries_->end() || found->empty()) return {};  // null is empty, too
  std::vector<std::string> names;
  for (size_t i = 0; found->is_object() && i < found->size(); ++i) {
    const auto name = found->find(std::to_string(i));
    if (name == found->end() || !name->is_string()) break;
    names.push_back(name->get<std::string>());
  }
  if (names.empty() || names.size() != found->size()) {
    throw DataError(path_.string(),
                    "id2label is not an object of names by the numbers of the outputs, from \"0\"");
  }
  return names;
}

std::string TransformersConfig::compare(const NetworkConfig& network, int64_t length,
                                        bool zoo) const {
  const auto type = entries_->find("model_type");
  // timm's files have none, or this one for those that it wraps for transformers.
  if (type == entries_->end() || *type == "timm_wrapper") {
    return "config.json is not one of transformers and is not compared";
  }
  const Family* family = find_family(*type);
  std::vector<std::string> problems;
  if (family) {
    problems = Comparison(*entries_, *family, network, length, zoo).problems();
  } else {
    problems.push_back(fmt::format(
        "'model_type' is {}, but only those of gpt2, llama, mistral, bert, vit and resnet can be "
        "compared with a network",
        printable(json_text(*type))));
  }
  if (!problems.empty()) {
    throw ConfigError("model.init_from",
                      fmt::format("{} describes another network than the configuration:\n  {}",
                                  path_.string(), fmt::join(problems, "\n  ")));
  }
  std::vector<std::string> unknown = unknown_entries(*entries_, *family);
  if (unknown.empty()) return "";
  constexpr size_t kMaxShown = 10;
  if (unknown.size() > kMaxShown) {
    unknown.resize(kMaxShown);
    unknown.emplace_back("...");
  }
  return fmt::format("config.json has entries that are not known and not compared: {}",
                     fmt::join(unknown, ", "));
}

}  // namespace trireme::train
