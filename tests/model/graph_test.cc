#include "model/graph.h"

#include <map>

#include "core/error.h"
#include "model/size.h"
#include "tests/model/harness.h"

namespace trireme::model {
namespace {

std::string build_error(const std::string& layers, const ModelInput& input) {
  try {
    build_graph(network(layers), input);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

const ModelInput kImages = classified({3, 8, 8}, 10);
const ModelInput kRows = classified({12}, 4);
const std::string kLoss = "layer { softmax_cross_entropy {} }";

void expect_mentions(const std::string& message, std::initializer_list<const char*> words) {
  for (const char* word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
}

TEST(Graph, NamesTheLayerAndBothShapes) {
  expect_mentions(build_error("layer { name: 'fc' dense { units: 4 } }" + kLoss, kImages),
                  {"'fc'", "dense", "[3, 8, 8]", "flatten"});
  expect_mentions(
      build_error(
          "layer { name: 'c' conv2d { channels: 4 kernel: 9 } } layer { flatten {} }" + kLoss,
          kImages),
      {"'c'", "9", "[3, 8, 8]"});
  expect_mentions(
      build_error("layer { name: 'a' dense { units: 4 } } layer { name: 'b' dense { units: 5 } }"
                  "layer { name: 'sum' add {} input: 'a' input: 'b' }" +
                      kLoss,
                  kRows),
      {"'sum'", "[4]", "[5]"});
  expect_mentions(
      build_error("layer { name: 'c' conv2d { channels: 4 kernel: 3 groups: 2 } }" + kLoss,
                  kImages),
      {"groups", "2", "3"});
}

TEST(Graph, SharedParametersMustFit) {
  const auto error = [](const std::string& layer) {
    return build_error(
        "layer { name: 'a' dense { units: 12 } } layer { name: 'n' layer_norm {} } " + layer +
            kLoss,
        kRows);
  };
  expect_mentions(error("layer { name: 'b' dense { units: 5 } shared { weight: 'a' } }"),
                  {"'b'", "shared.weight", "[5, 12]", "'a' (dense)", "[12, 12]"});
  expect_mentions(error("layer { name: 'b' dense { units: 12 } shared { bias: 'n' } }"),
                  {"'b'", "shared.bias", "same kind", "'n' (layer_norm)"});
  expect_mentions(error("layer { name: 'b' tanh {} shared { weight: 'a' } }"),
                  {"'b'", "shared.weight", "has no weight"});
  expect_mentions(error("layer { name: 'b' dense { units: 12 } shared { weight: 'later' } }"),
                  {"'b'", "no earlier layer is named 'later'"});
}

TEST(Graph, ScaleRequiresSomethingToTrain) {
  expect_mentions(build_error("layer { scale { weight: false bias: false } }" + kLoss, kRows),
                  {"scale", "does nothing"});
}

TEST(Graph, SuggestsTheNearestName) {
  expect_mentions(
      build_error(
          "layer { name: 'hidden' dense { units: 4 } } layer { name: 'out' dense { units: 4 } "
          "input: 'hiden' }" +
              kLoss,
          kRows),
      {"'out'", "'hiden'", "did you mean 'hidden'"});
  ModelConfig config = zoo("resnet81");
  try {
    build_graph(config, kImages);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    expect_mentions(error.what(), {"model.zoo.name", "resnet81", "resnet18"});
  }
}

// The products of the sizes would overflow.
TEST(Graph, NamesTheLayerThatExceedsTheSizeLimit) {
  for (const char* units : {"4611686018427387904", "150000000000000000", "30000000000000"}) {
    expect_mentions(build_error(std::string("layer { name: 'huge' dense { units: ") + units +
                                    " } }" + "layer { dense {} }" + kLoss,
                                kRows),
                    {"'huge'", "dense", units, "281474976710656"});
  }
  const auto convolution = [](const std::string& fields) {
    return build_error("layer { name: 'c' conv2d { " + fields + " } } layer { flatten {} }" +
                           "layer { dense {} }" + kLoss,
                       kImages);
  };
  expect_mentions(convolution("channels: 4611686018427387903 kernel: 3"), {"'c'", "weight"});
  expect_mentions(convolution("channels: 4 kernel: 1000000000 padding: 500000000"),
                  {"'c'", "weight"});
  expect_mentions(convolution("channels: 4 kernel: 4611686018427387904"),
                  {"'c'", "conv2d.kernel: must be at most"});
  expect_mentions(convolution("channels: 4 kernel: 1 padding: 4611686018427387904"),
                  {"'c'", "conv2d.padding: must be at most"});
}

TEST(Graph, ComputesSizesFromShapes) {
  const Graph graph = build_graph(network("layer { name: 'a' dense { units: 100 } }"
                                          "layer { name: 'b' dense { units: 4 } }" +
                                          kLoss),
                                  kRows);
  const NetworkSize size = size_of(graph, 10);
  EXPECT_EQ(size.parameters, 12 * 100 + 100 + 100 * 4 + 4);
  EXPECT_EQ(size.trained, size.parameters);
  EXPECT_EQ(size.largest_layer, "a");
  EXPECT_EQ(size.largest_output, 1000);
  EXPECT_EQ(size.largest_output_layer, "a");
  try {
    size_of(graph, int64_t{1} << 50);
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    expect_mentions(error.what(), {"'a'", "[100]", "1125899906842624 samples"});
  }
}

TEST(Graph, RejectsInvalidNetworks) {
  expect_mentions(build_error("", kRows), {"model.network.layer"});
  std::string many;
  for (int i = 0; i < 20000; ++i) many += "layer { relu {} } ";
  expect_mentions(build_error(many + "layer { softmax_cross_entropy {} }", kRows),
                  {"model.network.layer: has 20001 layers; at most 20000 are supported"});
  expect_mentions(build_error("layer { dense { units: 4 } }", kRows), {"last layer", "loss"});
  expect_mentions(build_error("layer { name: 'x' }" + kLoss, kRows), {"'x'", "no kind"});
  expect_mentions(
      build_error("layer { name: 'a' relu {} } layer { name: 'a' relu {} }" + kLoss, kRows),
      {"'a'", "used already"});
  expect_mentions(build_error("layer { name: 'a\\nwarning: b' relu {} }" + kLoss, kRows),
                  {"'a\\nwarning: b'", "the name has control characters or is not UTF-8"});
  expect_mentions(build_error("layer { dense { units: 3 } }" + kLoss, kRows),
                  {"3 logits", "4 classes"});
  expect_mentions(build_error("layer { dropout { rate: 1 } }" + kLoss, kRows), {"dropout.rate"});
  expect_mentions(
      build_error("layer { dense { units: 4 } } layer { mean_squared_error {} }", kRows),
      {"class labels"});
  expect_mentions(build_error(kLoss + "layer { relu {} }" + kLoss, kRows), {"loss must come last"});
}

TEST(Graph, AcceptsProbabilitiesAsLabels) {
  ModelInput soft = kRows;
  soft.target = {DType::kF32, {4}, Layout::row_major()};
  EXPECT_NO_THROW(build_graph(network("layer { dense { units: 4 } }" + kLoss), soft));
  expect_mentions(build_error("layer { dense { units: 5 } }" + kLoss, soft),
                  {"5 logits", "4 classes"});
  expect_mentions(build_error("layer { dense { units: 4 } } layer { mean_squared_error {} }", soft),
                  {"class labels"});
  soft.classes = 0;
  expect_mentions(build_error("layer { dense { units: 4 } }" + kLoss, soft),
                  {"numbers as targets"});
}

TEST(Graph, OnlyEmbeddingsReadTokens) {
  expect_mentions(build_error("layer { dense { units: 4 } }" + kLoss, token_input(256, 4)),
                  {"'dense_0'", "reads tokens", "embedding"});
  expect_mentions(build_error("layer { embedding { units: 4 } }" + kLoss, kRows),
                  {"'embedding_0'", "requires tokens", "f32 [12]"});
  expect_mentions(build_error("layer { embedding { units: 4 } } layer { global_pool {} } layer { "
                              "flatten {} } layer { dense {} }" +
                                  kLoss,
                              token_input(6, 4)),
                  {"global_pool", "[6, 4]"});
  expect_mentions(
      build_error(
          "layer { embedding { units: 4 } } layer { flatten {} } layer { dense {} }" + kLoss,
          token_input(6, 4)),
      {"reads [4], but a sample has 6 labels"});
}

TEST(Graph, ChecksTheTokensOfAttention) {
  const auto error = [](const std::string& attention, const ModelInput& input) {
    return build_error("layer { embedding { units: 3 } } layer { attention { heads: 1 " +
                           attention + " } } layer { dense {} }" + kLoss,
                       input);
  };
  expect_mentions(error("document_end: 3", token_input(6, 4)),
                  {"'attention_1'", "attention.document_end", "attention.causal"});
  expect_mentions(error("document_end: 4 causal: true", token_input(6, 4)),
                  {"attention.document_end: 4", "not in the vocabulary", "[0, 4)"});
  expect_mentions(error("padding_token: -1", token_input(6, 4)),
                  {"attention.padding_token: -1", "not in the vocabulary"});
  expect_mentions(build_error("layer { attention { heads: 1 padding_token: 0 } } layer { flatten "
                              "{} } layer { dense {} }" +
                                  kLoss,
                              classified({4, 3}, 4)),
                  {"attention.padding_token", "a network that reads tokens", "f32 [4, 3]"});
}

TEST(Graph, FusesLayers) {
  const Graph graph = build_graph(
      network(
          "layer { name: 'c1' conv2d { channels: 3 kernel: 1 } } layer { name: 'r0' relu {} }"
          "layer { name: 'c2' conv2d { channels: 3 kernel: 1 } } layer { name: 'n' batch_norm {} }"
          "layer { name: 'sum' add {} input: 'n' input: 'r0' } layer { name: 'r1' relu {} }"
          "layer { name: 'd' dropout { rate: 0 } }"
          "layer { name: 'unread' relu {} input: 'c1' }"
          "layer { name: 'f' flatten {} input: 'd' } layer { name: 'fc' dense { units: 10 } }"
          "layer { name: 's' silu {} }" +
          kLoss),
      kImages);
  std::vector<std::string> names;
  for (const Node& node : graph.nodes) names.push_back(node.name);
  // 'unread' is a second reader of c1 until it is removed. A SiLU cannot be fused, since its
  // derivative needs its input.
  EXPECT_EQ(names, (std::vector<std::string>{"c1", "c2", "n", "f", "fc", "s",
                                             "softmax_cross_entropy_11"}));
  EXPECT_EQ(graph.nodes[2].inputs, (std::vector<int>{1, 0}));
}

TEST(Zoo, HasThePublishedParameterCounts) {
  // The counts of torchvision 0.20, and of the papers for CIFAR networks.
  const std::map<std::string, int64_t> kCounts = {
      {"lenet", 61706},
      {"alexnet", 61100840},
      {"resnet18", 11689512},
      {"resnet34", 21797672},
      {"resnet50", 25557032},
      {"resnet18-cifar", 11173962},
      {"mlp", 20037642},
      {"resnet20", 272474},
      {"resnet56", 855770},
      {"vgg11", 132863336},
      {"vgg13", 133047848},
      {"vgg16", 138357544},
      {"vgg19", 143667240},
      {"vgg11-bn", 132868840},
      {"vgg13-bn", 133053736},
      {"vgg16-bn", 138365992},
      {"vgg19-bn", 143678248},
      // GPT-2 of transformers 5.23 with these sizes.
      {"gpt-mini", 10770816},
      {"gpt2-124m", 124475904},
      {"gpt2-355m", 354871296},
      {"gpt2-774m", 774090240},
      {"llama-mini", 9492096},
      // torch.nn.Embedding, LSTM and Linear with these sizes.
      {"lstm", 6182672},
      // BertForSequenceClassification of transformers with two classes and 128 positions.
      {"bert-mini", 11072770},
      {"bert-base", 109188866},
      // Those of timm.
      {"vit-tiny", 5717416},
      {"vit-base", 86567656},
  };
  for (const std::string& name : zoo_names()) {
    const Graph graph = build_graph(zoo(name), zoo_input(name));
    int64_t count = 0;
    for (const Node& node : graph.nodes) {
      for (const auto& parameter : node.signature.parameters) {
        if (parameter.tied_to.empty()) count += parameter.shape.elements();
      }
    }
    ASSERT_TRUE(kCounts.contains(name)) << name;
    EXPECT_EQ(count, kCounts.at(name)) << name;
  }
}

TEST(Graph, GroupNormRequiresGroupsThatDivideTheChannels) {
  const auto error = [](const std::string& options) {
    return build_error("layer { name: 'gn' group_norm { " + options +
                           " } } layer { flatten {} } layer { dense {} }" + kLoss,
                       classified({6, 2, 2}, 5));
  };
  expect_mentions(error(""), {"'gn'", "group_norm.num_groups", "is missing", "6 channels"});
  expect_mentions(error("num_groups: 4"),
                  {"'gn'", "4 does not divide the 6 channels of [6, 2, 2]"});
  expect_mentions(error("num_groups: 0"), {"'gn'", "0 does not divide"});
  expect_mentions(error("num_groups: 3 epsilon: 0"), {"group_norm.epsilon", "positive"});
}

// As documented: weight decay applies to them only with optimizer.decay_bias_and_norm.
TEST(Graph, ClassTokensAndTheirPositionsDecayLikeBiases) {
  const Graph graph =
      build_graph(network("layer { to_sequence {} } layer { name: 'class' class_token {} } "
                          "layer { token_pool {} } layer { dense {} }" +
                          std::string(kLoss)),
                  classified({3, 4, 4}, 5));
  const auto found = std::ranges::find(graph.nodes, "class", &Node::name);
  ASSERT_NE(found, graph.nodes.end());
  ASSERT_EQ(found->signature.parameters.size(), 2u);
  for (const auto& parameter : found->signature.parameters) {
    EXPECT_FALSE(parameter.decays) << parameter.name;
  }
}

// The result would always be 0, and nothing before the layer would be trained.
TEST(Graph, NormsOfSingleValuesAreRefused) {
  const auto error = [](const std::string& norm) {
    return build_error(
        "layer { flatten {} } layer { name: 'norm' " + norm + " } layer { dense {} }" + kLoss,
        classified({1, 1, 6}, 5));
  };
  expect_mentions(error("group_norm { num_groups: 6 }"),
                  {"'norm'", "each of the 6 groups of [6] has a single value"});
  const std::string one = "layer { dense { units: 1 } } layer { name: 'norm' layer_norm {} }";
  expect_mentions(build_error(one + " layer { dense {} }" + kLoss, classified({4}, 5)),
                  {"'norm'", "needs at least 2 features", "got [1]"});
}

TEST(Graph, RecurrentLayersCheckTheirSizes) {
  const auto error = [](const std::string& layer) {
    return build_error("layer { embedding { units: 4 } } layer { name: 'rnn' " + layer + " }" +
                           "layer { dense {} }" + kLoss,
                       token_input(6, 5));
  };
  expect_mentions(error("lstm {}"), {"'rnn' (lstm)", "lstm.hidden: must be in [1, ", "got 0"});
  expect_mentions(error("gru { hidden: 9223372036854775807 }"), {"(gru)", "gru.hidden", "must be"});
  expect_mentions(error("gru { hidden: 3 layers: 0 }"), {"gru.layers: must be in [1, 1000]"});
  expect_mentions(error("lstm { hidden: 3 layers: 1001 }"), {"lstm.layers", "got 1001"});
  expect_mentions(error("lstm { hidden: 3 dropout: 1 }"), {"lstm.dropout", "below 1"});
  EXPECT_NE(
      build_error("layer { lstm { hidden: 3 } }" + kLoss, classified({3, 6, 6}, 5)).find("[T, F]"),
      std::string::npos);
}

// The names and shapes of torch.nn.LSTM(4, 3, num_layers=2, bidirectional=True).
TEST(Graph, RecurrentLayersHaveTheParametersOfPyTorch) {
  const Graph graph =
      build_graph(network("layer { embedding { units: 4 } } layer { name: 'rnn' lstm { hidden: 3 "
                          "layers: 2 bidirectional: true } } layer { dense {} }" +
                          kLoss),
                  token_input(6, 5));
  std::map<std::string, Shape> parameters;
  for (const Signature::Parameter& parameter : graph.nodes[1].signature.parameters) {
    parameters[parameter.name] = parameter.shape;
  }
  ASSERT_EQ(parameters.size(), 16u);
  for (const std::string direction : {"", "_reverse"}) {
    EXPECT_EQ(parameters["weight_ih_l0" + direction], (Shape{12, 4}));
    EXPECT_EQ(parameters["weight_ih_l1" + direction], (Shape{12, 6}));
    for (const std::string layer : {"_l0", "_l1"}) {
      EXPECT_EQ(parameters["weight_hh" + layer + direction], (Shape{12, 3}));
      EXPECT_EQ(parameters["bias_ih" + layer + direction], (Shape{12}));
      EXPECT_EQ(parameters["bias_hh" + layer + direction], (Shape{12}));
    }
  }
  EXPECT_EQ(graph.nodes[1].signature.output, (Shape{6, 6}));
}

TEST(Zoo, OptionsSetTheSizeOfTransformers) {
  const auto parameters = [](const std::string& name, int64_t heads) {
    ModelConfig config = zoo(name);
    config.mutable_zoo()->set_blocks(2);
    config.mutable_zoo()->set_width(48);
    config.mutable_zoo()->set_heads(heads);
    return size_of(build_graph(config, zoo_input("gpt-mini")), 1).parameters;
  };
  ModelConfig documents = zoo("llama-mini");
  documents.mutable_zoo()->set_document_end(64);
  const NetworkConfig network = network_of(documents, zoo_input("llama-mini"));
  for (const LayerConfig& layer : network.layer()) {
    if (!layer.has_attention()) continue;
    EXPECT_EQ(layer.attention().document_end(), 64);
  }
  EXPECT_EQ(parameters("gpt-mini", 4), 65 * 48 + 256 * 48 + 2 * (12 * 48 * 48 + 13 * 48) + 2 * 48);
  EXPECT_EQ(parameters("llama-mini", 4),
            2 * 65 * 48 + 2 * (4 * 48 * 48 + 3 * 48 * 128 + 2 * 48) + 48);
  ModelConfig config = zoo("llama-mini");
  ZooConfig& llama = *config.mutable_zoo();
  llama.set_blocks(2);
  llama.set_width(48);
  llama.set_heads(6);
  llama.set_kv_heads(3);
  llama.set_mlp_width(40);
  llama.set_rotary_base(500);
  EXPECT_EQ(size_of(build_graph(config, zoo_input("llama-mini")), 1).parameters,
            2 * 65 * 48 + 2 * (2 * 48 * 48 + 48 * 48 + 3 * 48 * 40 + 2 * 48) + 48);
  llama.set_kv_heads(4);
  try {
    network_of(config, zoo_input("llama-mini"));
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    expect_mentions(error.what(), {"model.zoo.kv_heads", "must divide the 6 heads, got 4"});
  }
  for (const auto& [name, heads, word] : {std::tuple{"gpt-mini", 5,
                                                     "model.zoo.heads: the width 48 is not a "
                                                     "multiple of the 5 heads"},
                                          {"lenet", 4, "'lenet' has no blocks"}}) {
    try {
      parameters(name, heads);
      ADD_FAILURE() << "accepted";
    } catch (const ConfigError& error) {
      expect_mentions(error.what(), {"model.zoo", word});
    }
  }
}

TEST(Zoo, OptionsSetTheSizeOfLstm) {
  ModelConfig config = zoo("lstm");
  ZooConfig& options = *config.mutable_zoo();
  options.set_blocks(3);
  options.set_width(40);
  options.set_dropout(0.25F);
  const Graph graph = build_graph(config, token_input(8, 65));
  EXPECT_EQ(size_of(graph, 1).parameters, 65 * 40 + 3 * (2 * 160 * 40 + 2 * 160) + 65 * 40 + 65);
  EXPECT_EQ(graph.nodes.size(), 6u);  // with dropout before and after the LSTM
  options.set_heads(4);
  try {
    build_graph(config, token_input(8, 65));
    ADD_FAILURE() << "accepted";
  } catch (const ConfigError& error) {
    expect_mentions(error.what(), {"model.zoo.heads", "'lstm' has no heads"});
  }
}

// Returns the message for a zoo network with these options, or "no error".
std::string zoo_error(const std::string& options, const ModelInput& input) {
  ModelConfig config;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString("zoo { " + options + " }", &config));
  try {
    build_graph(config, input);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Zoo, EncodersFitTheirData) {
  const ModelInput images = classified({3, 32, 24}, 10), rows = classified({12}, 10);
  const ModelInput tokens = labeled_tokens(16, 50, 3), words = token_input(16, 50);
  EXPECT_EQ(zoo_error("name: 'vit-tiny' patch: 4 pooling: MEAN", images), "no error");
  EXPECT_EQ(zoo_error("name: 'bert-mini' padding_token: 0 segment_end: 49 vocab_size: 60", tokens),
            "no error");
  EXPECT_EQ(zoo_error("name: 'bert-mini' pooling: MEAN padding_token: 0", tokens), "no error");
  EXPECT_EQ(zoo_error("name: 'bert-mini' padding_token: 49", words), "no error");
  const auto expect = [](const std::string& options, const ModelInput& input,
                         std::initializer_list<const char*> words_of_error) {
    expect_mentions(zoo_error(options, input), words_of_error);
  };
  expect("name: 'vit-tiny'", images,
         {"model.zoo.patch", "16 does not divide the sides of the images, 32 x 24"});
  expect("name: 'vit-tiny'", rows, {"model.zoo.name", "vit-tiny needs images [C, H, W], got"});
  expect("name: 'bert-mini'", images, {"model.zoo.name", "bert-mini needs tokens"});
  expect("name: 'bert-mini' vocab_size: 49", tokens,
         {"model.zoo.vocab_size", "50 is the vocabulary of the data, got 49"});
  expect("name: 'bert-mini' padding_token: 50", tokens,
         {"padding_token", "50 is not in the vocabulary of the data, [0, 50)"});
  expect("name: 'bert-mini' segment_end: -1", tokens, {"embedding.segment_end", "-1 is not in"});
  expect("name: 'bert-mini' pooling: CLS", words, {"model.zoo.pooling", "one label"});
  expect("name: 'bert-mini' patch: 4", tokens,
         {"model.zoo.patch", "'bert-mini' has no patch to choose; vision transformers have"});
  expect("name: 'gpt-mini' pooling: MEAN", words, {"model.zoo.pooling", "'gpt-mini'"});
}

TEST(Zoo, OptionsAreNotIgnored) {
  const ModelInput images = classified({3, 32, 32}, 10), words = token_input(16, 50);
  const auto expect = [](const std::string& options, const ModelInput& input,
                         std::initializer_list<const char*> words_of_error) {
    expect_mentions(zoo_error(options, input), words_of_error);
  };
  expect("name: 'resnet20' dropout: 0.5", images,
         {"model.zoo.dropout", "'resnet20' has no dropout"});
  expect("name: 'resnet20' hidden: 5", images, {"model.zoo.hidden", "'resnet20' has no hidden"});
  expect("name: 'gpt-mini' dropout: -0.1", words,
         {"model.zoo.dropout", "must be at least 0 and below 1, got -0.1"});
  expect("name: 'lstm' dropout: nan", words, {"model.zoo.dropout", "got nan"});
  EXPECT_EQ(zoo_error("name: 'gpt-mini' max_length: 40 norm_epsilon: 1e-6", words), "no error");
  expect("name: 'gpt-mini' max_length: 15", words,
         {"layer 'wte' (embedding): embedding.max_length: must be in [16, ", "got 15"});
  expect("name: 'llama-mini' max_length: 40", words,
         {"model.zoo.max_length", "GPT-2 and BERT have"});
  expect("name: 'llama-mini' norm_epsilon: 0", words, {"model.zoo.norm_epsilon", "got 0"});
  expect("name: 'resnet20' norm_epsilon: 1e-6", images,
         {"model.zoo.norm_epsilon", "'resnet20' has no norm_epsilon"});
}

TEST(Graph, ChecksEncoders) {
  const ModelInput images = classified({3, 4, 6}, 5), tokens = labeled_tokens(6, 4, 5);
  const auto error = [](const std::string& layers, const ModelInput& input) {
    return build_error(layers + " layer { dense {} }" + kLoss, input);
  };
  expect_mentions(error("layer { to_sequence {} }", kRows), {"to_sequence", "[C, H, W]", "[12]"});
  expect_mentions(error("layer { class_token {} }", images), {"class_token", "[T, F]"});
  expect_mentions(error("layer { token_pool {} }", images), {"token_pool", "[T, F]"});
  const std::string sequence = "layer { to_sequence {} } layer { token_pool { ";
  expect_mentions(error(sequence + "mode: MEAN skip: 24 } }", images),
                  {"token_pool.skip", "[0, 24)", "got 24"});
  expect_mentions(error(sequence + "skip: 1 } }", images), {"token_pool.skip", "mode: MEAN"});
  expect_mentions(error(sequence + "mode: MEAN padding_token: 0 } }", images),
                  {"token_pool.padding_token", "requires a network that reads tokens"});
  const auto embedded = [&](const std::string& embedding, const std::string& pool) {
    return error(
        "layer { embedding { units: 3 " + embedding + " } } layer { token_pool { " + pool + " } }",
        tokens);
  };
  expect_mentions(embedded("", "mode: MEAN padding_token: 4"),
                  {"token_pool.padding_token", "4 is not in the vocabulary of the data, [0, 4)"});
  expect_mentions(embedded("segment_end: 1", ""),
                  {"embedding.segment_end", "requires embedding.segments"});
  expect_mentions(embedded("segments: -1", ""), {"embedding.segments", "got -1"});
  expect_mentions(embedded("vocab_size: 3", ""), {"vocab_size: 3 is less than", "4"});
}

TEST(Zoo, NormGroupsReplaceBatchNorm) {
  const auto kinds = [](const ModelConfig& config) {
    std::map<std::string_view, int> counts;
    const Graph graph = build_graph(config, classified({3, 32, 32}, 10));
    for (const Node& node : graph.nodes) ++counts[node.layer->kind()];
    return counts;
  };
  ModelConfig config = zoo("resnet18");
  const auto before = kinds(config);
  config.mutable_zoo()->set_norm_groups(32);
  const auto after = kinds(config);
  EXPECT_EQ(before.at("batch_norm"), 20);
  EXPECT_EQ(after.at("group_norm"), 20);
  EXPECT_FALSE(after.contains("batch_norm"));
  config.mutable_zoo()->set_sync_batch_norm(true);
  EXPECT_THROW(kinds(config), ConfigError);
  ModelConfig without = zoo("mlp");
  without.mutable_zoo()->set_norm_groups(4);
  EXPECT_THROW(kinds(without), ConfigError);
}

}  // namespace
}  // namespace trireme::model
