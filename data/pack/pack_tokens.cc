#include "data/pack/pack_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <xxhash.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "data/data.pb.h"
#include "data/formats/formats.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kBin = "bin";
constexpr int64_t kChunk = 1 << 20;  // tokens that are copied at a time

const TokenHeader& header_for(const TokenStream& source) {
  return kTokenHeaders[source.vocab_size() > 1 << 16 ? 1 : 0];
}

// Returns a hash of 64 pieces of the tokens, spread evenly.
uint64_t identity_of(const TokenStream& source) {
  constexpr int64_t kPieces = 64;
  std::vector<int32_t> piece(static_cast<size_t>(std::min<int64_t>(1024, source.size())));
  uint64_t hash = 0;
  for (int64_t i = 0; i < kPieces; ++i) {
    source.read(i * (source.size() - std::ssize(piece)) / (kPieces - 1), piece);
    hash = XXH3_64bits_withSeed(piece.data(), piece.size() * sizeof(int32_t), hash);
  }
  return hash;
}

std::string plan_of(const TokenStream& source, const PackOptions& options) {
  const nlohmann::ordered_json plan = {{"source", source.description()},
                                       {"identity", fmt::format("{:016x}", identity_of(source))},
                                       {"tokens", source.size()},
                                       {"vocabulary", source.vocab_size()},
                                       {"shard size", options.shard_bytes}};
  return plan.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void write_vocabulary(const TokenStream& source, const fs::path& folder) {
  constexpr const char* kWhat = "tokens";
  if (const auto tokenizer = source.tokenizer()) {
    for (const TokenizerFile& file : tokenizer->files()) {
      write_meaning((folder / file.name).string(), file.content, kWhat);
    }
  }
  const std::vector<std::string> names = source.names();
  if (names.empty()) return;
  write_meaning((folder / "vocab.txt").string(), fmt::format("{}\n", fmt::join(names, "\n")),
                kWhat);
}

template <class T>
void write_tokens(NewFile& file, std::span<const int32_t> tokens) {
  std::vector<T> stored(tokens.size());
  std::ranges::transform(tokens, stored.begin(),
                         [](int32_t token) { return static_cast<T>(token); });
  file.write(std::as_bytes(std::span(stored)));
}

// Returns false, and writes no file, if options.stop stopped packing.
bool write_shard(const TokenStream& source, const PackOptions& options, const std::string& path,
                 int64_t begin, int64_t end) {
  const TokenHeader& header = header_for(source);
  std::vector<int32_t> words(kTokenHeaderBytes / sizeof(int32_t));
  words[0] = header.magic;
  words[1] = header.version;
  words[2] = static_cast<int32_t>(end - begin);
  NewFile file(path);
  file.write(std::as_bytes(std::span(words)));
  std::vector<int32_t> tokens;
  for (; begin < end; begin += std::ssize(tokens)) {
    if (options.stop && options.stop()) return false;
    tokens.resize(static_cast<size_t>(std::min(kChunk, end - begin)));
    source.read(begin, tokens);
    if (header.width == 2) {
      write_tokens<uint16_t>(file, tokens);
    } else {
      write_tokens<uint32_t>(file, tokens);
    }
    if (options.progress) options.progress(begin + std::ssize(tokens), source.size());
  }
  file.finish();
  return true;
}

}  // namespace

std::unique_ptr<TokenStream> open_pack_tokens(const DataConfig& config, Part part) {
  if (config.has_text()) return open_text_stream(config, part);
  check_part_to_pack(config, part);
  DataConfig files = config;
  files.clear_holdout();
  return open_token_files(files, part);
}

PackState pack_tokens(const TokenStream& source, const PackOptions& options) {
  const FolderLock lock = lock_pack_folder(options.folder, options.note);
  PackState state = begin_pack(options.folder, options.name, kBin, plan_of(source, options));
  write_vocabulary(source, options.folder);
  const std::string state_path = pack_state_path(options.folder, options.name);
  const auto width = static_cast<int64_t>(header_for(source).width);
  const int64_t tokens_per_shard =
      std::clamp<int64_t>((options.shard_bytes - static_cast<int64_t>(kTokenHeaderBytes)) / width,
                          1, std::numeric_limits<int32_t>::max());
  while (state.end() < source.size()) {
    const int64_t begin = state.end(), end = std::min(begin + tokens_per_shard, source.size());
    const std::string name = shard_name(options.name, state.shards.size(), kBin);
    if (!write_shard(source, options, (fs::path(options.folder) / name).string(), begin, end)) {
      return state;
    }
    state.shards.push_back(
        {.name = name,
         .bytes = kTokenHeaderBytes + static_cast<uint64_t>((end - begin) * width),
         .samples = end - begin,
         .end = end});
    state.done = end == source.size();
    save_pack_state(state, state_path);
  }
  return state;
}

}  // namespace trireme::data
