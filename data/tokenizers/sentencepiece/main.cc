// trireme-sentencepiece: see channel.h. Trireme starts it; it is of no use otherwise.
#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <mutex>
#include <new>
#include <span>
#include <system_error>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/sentencepiece/channel.h"

namespace {

using trireme::data::sentencepiece::Channel;
using trireme::data::sentencepiece::PieceKind;

std::string bytes_of(const std::vector<int>& numbers) {
  static_assert(sizeof(int) == sizeof(int32_t));
  std::string bytes(numbers.size() * sizeof(int32_t), '\0');
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

PieceKind kind_of(const sentencepiece::SentencePieceProcessor& processor, int id) {
  if (processor.IsUnknown(id)) return PieceKind::kUnknown;
  if (processor.IsByte(id)) return PieceKind::kByte;
  return processor.IsControl(id) || processor.IsUnused(id) ? PieceKind::kOther : PieceKind::kText;
}

bool describe(const sentencepiece::SentencePieceProcessor& processor, Channel& channel) {
  bool sent = channel.send(
      bytes_of({processor.unk_id(), processor.bos_id(), processor.eos_id(), processor.pad_id()}));
  std::string pieces;
  for (int id = 0; id < processor.GetPieceSize(); ++id) {
    const std::string& piece = processor.IdToPiece(id);
    const auto size = static_cast<uint32_t>(piece.size());
    pieces += static_cast<char>(kind_of(processor, id));
    pieces.append(reinterpret_cast<const char*>(&size), sizeof size);
    pieces += piece;
  }
  return sent && channel.send(pieces);
}

int read(Channel& channel) {
  std::string model, text;
  if (!channel.receive(model)) return 1;
  sentencepiece::SentencePieceProcessor processor;
  const auto loaded = processor.LoadFromSerializedProto(model);
  if (!channel.send(loaded.ok() ? "" : loaded.ToString()) || !loaded.ok()) return 1;
  if (!describe(processor, channel)) return 1;
  std::vector<int> tokens;
  while (channel.receive(text)) {
    const auto encoded = processor.Encode(text, &tokens);
    if (!channel.send(encoded.ok() ? "" : encoded.ToString())) return 1;
    if (encoded.ok() && !channel.send(bytes_of(tokens))) return 1;
  }
  return 0;  // Trireme has closed the tokenizer
}

// The lines that Trireme sends.
class Lines final : public sentencepiece::SentenceIterator {
 public:
  explicit Lines(Channel& channel) : channel_(channel) { advance(); }
  bool done() const override { return line_.empty(); }
  void Next() override { advance(); }
  const std::string& value() const override { return line_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  void advance() {
    if (!channel_.receive(line_)) line_.clear();
  }

  Channel& channel_;
  std::string line_;
};

int train(Channel& channel, const char* vocab_size, const char* type) {
  sentencepiece::SetRandomGeneratorSeed(1);
  Lines lines(channel);
  std::string model;
  // Texts are preserved: characters that are not in the vocabulary become bytes, and nothing is
  // normalized.
  const std::unordered_map<std::string, std::string> options = {
      {"vocab_size", vocab_size},
      {"model_type", type},
      {"byte_fallback", "true"},
      {"normalization_rule_name", "identity"},
      {"remove_extra_whitespaces", "false"},
      {"pad_id", "3"},
      {"input_sentence_size", "10000000"},
      {"max_sentence_length", "1000000"},
      {"minloglevel", "2"},
  };
  const auto trained = sentencepiece::SentencePieceTrainer::Train(options, &lines, &model);
  while (!lines.done()) lines.Next();  // after an error, so that Trireme can send them
  if (!channel.send(trained.ok() ? "" : trained.ToString())) return 1;
  return trained.ok() && channel.send(model) ? 0 : 1;
}

}  // namespace

int main(int count, char** arguments) {
  const std::span<char*> args(arguments, static_cast<size_t>(count));
  int socket = -1;
  if (args.size() >= 3) std::from_chars(args[1], args[1] + std::strlen(args[1]), socket);
  const std::string_view what = args.size() >= 3 ? args[2] : "";
  // Trireme decides when this program ends, also after a signal to both.
  for (const int ignored : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2}) {
    std::signal(ignored, SIG_IGN);
  }
  static Channel channel(socket);
  std::set_terminate([] {  // by exceptions in the library's threads
    static std::mutex first;
    first.lock();
    try {
      if (const auto exception = std::current_exception()) std::rethrow_exception(exception);
    } catch (const std::bad_alloc&) {
      channel.send("out of memory");
    } catch (const std::system_error&) {  // a thread cannot be started
      channel.send("out of memory or threads");
    } catch (const std::exception& error) {
      channel.send(error.what());
    } catch (...) {  // the status of other exits says enough
    }
    std::_Exit(1);
  });
  if (what == "read") return read(channel);
  if (what == "train" && args.size() == 5) return train(channel, args[3], args[4]);
  std::fputs("trireme-sentencepiece is started by trireme for SentencePiece models\n", stderr);
  return 2;
}
