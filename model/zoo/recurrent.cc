// A recurrent language model: LSTM (Hochreiter and Schmidhuber, 1997), with the layer names of
// PyTorch's example of a word language model.
#include "model/zoo/builder.h"
#include "model/zoo/zoo.h"

namespace trireme::model {

NetworkConfig lstm(const std::string& name, const ZooConfig& options, const ModelInput& input) {
  require_tokens(name, input);
  constexpr int64_t kLayers = 2, kWidth = 256;
  const int64_t width = options.has_width() ? options.width() : kWidth;
  NetworkBuilder net(name, options);
  const auto dropout = [&](const char* layer) {
    if (options.dropout() > 0) net.dropout(layer, options.dropout());
  };
  EmbeddingConfig& embedding = *net.layer("encoder").mutable_embedding();
  embedding.set_units(width);
  embedding.set_vocab_size(options.classes());
  dropout("encoder.dropout");
  RecurrentConfig& recurrent = *net.layer("rnn").mutable_lstm();
  recurrent.set_hidden(width);
  recurrent.set_layers(options.has_blocks() ? options.blocks() : kLayers);
  recurrent.set_dropout(options.dropout());
  recurrent.set_stateful(options.stateful());
  if (options.has_document_end()) recurrent.set_document_end(options.document_end());
  dropout("rnn.dropout");
  net.dense("decoder", options.classes());
  return net.finish();
}

}  // namespace trireme::model
