// Packs the tokens of a text or of token files into files that data.tokens reads.
#pragma once

#include "data/formats/token_stream.h"
#include "data/pack/pack.h"

namespace trireme::data {

// Opens the tokens of a part, as they are packed. data.holdout splits a text; for token files, it
// applies when the packed files are read. Throws as open_dataset() does.
std::unique_ptr<TokenStream> open_pack_tokens(const DataConfig& config, Part part);

// Writes NAME-000000.bin and so on, in the format of llm.c with uint16 or, if the vocabulary is
// larger, uint32, NAME.pack.json (the state) and, if tokens have names, vocab.txt or, if they have
// a tokenizer, its files. Uses the folder, name, size of shards, `progress` and `stop` of the
// options; the numbers in the state and of `progress` are tokens. Otherwise like pack(). Also
// throws ConfigError if the folder has a different vocab.txt or tokenizer.
PackState pack_tokens(const TokenStream& source, const PackOptions& options);

}  // namespace trireme::data
