#include "data/pack/state.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "data/files/file.h"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Throws ConfigError about the first field in which the plans differ.
void check_plan(const Json& now, const Json& before, const std::string& path) {
  for (const auto& [field, value] : now.items()) {
    if (field == "source") continue;  // informational: the files may have been moved
    if (before.contains(field) && before.at(field) == value) continue;
    throw ConfigError(
        path, fmt::format("the existing shards were packed with other settings: {} is {} now and "
                          "was {}; pack into another folder, or remove them and this file",
                          field, value.dump(), before.value(field, Json()).dump()));
  }
}

PackedShard shard_of(const Json& json) {
  return {.name = json.at("name"),
          .bytes = json.at("bytes"),
          .samples = json.at("samples"),
          .end = json.at("end"),
          .bad = {json.at("bad"), json.at("first_bad")}};
}

Json json_of(const PackedShard& shard) {
  return {{"name", shard.name}, {"bytes", shard.bytes},   {"samples", shard.samples},
          {"end", shard.end},   {"bad", shard.bad.count}, {"first_bad", shard.bad.first}};
}

bool is_complete(const PackedShard& shard, const std::string& folder) {
  std::error_code missing;
  const auto bytes = fs::file_size(fs::path(folder) / shard.name, missing);
  return !missing && bytes == shard.bytes;
}

}  // namespace

int64_t PackState::samples() const {
  int64_t sum = 0;
  for (const PackedShard& shard : shards) sum += shard.samples;
  return sum;
}

std::optional<PackState> read_pack_state(const std::string& path) {
  if (!fs::exists(path)) return std::nullopt;
  const File file = read_file(path);
  try {
    const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()),
                                file.bytes.size());
    const Json json = parse_ordered_json(text);
    PackState state{.plan = json.at("plan").dump(), .shards = {}, .done = json.at("done")};
    for (const Json& shard : json.at("shards")) state.shards.push_back(shard_of(shard));
    return state;
  } catch (const Json::exception& error) {
    throw DataError(path, fmt::format("is damaged: {}; remove it and the shards next to it to pack "
                                      "again",
                                      error.what()));
  }
}

std::string shard_name(const std::string& name, size_t number, std::string_view extension) {
  return fmt::format("{}-{:06}.{}", name, number, extension);
}

std::string shard_pattern(const std::string& name, size_t shards, std::string_view extension) {
  if (shards == 1) return shard_name(name, 0, extension);
  return fmt::format("{}-{{{:06}..{:06}}}.{}", name, 0, shards - 1, extension);
}

std::string pack_state_path(const std::string& folder, const std::string& name) {
  return (fs::path(folder) / (name + ".pack.json")).string();
}

FolderLock lock_pack_folder(const std::string& folder,
                            const std::function<void(std::string_view)>& note) {
  create_folders(folder);
  FolderLock lock(folder, "folder", "pack into another folder");
  if (!lock.problem().empty() && note) note("warning: " + lock.problem());
  return lock;
}

PackState begin_pack(const std::string& folder, const std::string& name, std::string_view extension,
                     const std::string& plan) {
  const std::string path = pack_state_path(folder, name);
  const fs::path first = fs::path(folder) / shard_name(name, 0, extension);
  std::optional<PackState> state = read_pack_state(path);
  if (!state && fs::exists(first)) {
    throw ConfigError(first.string(),
                      "already exists, but there is no state of an earlier pack; use another "
                      "folder");
  }
  if (!state || (state->shards.empty() && !fs::exists(first))) {
    state = PackState{.plan = plan, .shards = {}, .done = false};
    save_pack_state(*state, path);
  }
  check_plan(Json::parse(plan), Json::parse(state->plan), path);
  for (size_t i = 0; i < state->shards.size(); ++i) {
    if (is_complete(state->shards[i], folder)) continue;
    state->shards.resize(i);
    state->done = false;
  }
  return *std::move(state);
}

void check_meaning(const std::string& path, const std::string& text, const std::string& what) {
  if (!fs::exists(path) || read_text(path) == text) return;
  throw ConfigError(path, fmt::format("names other {} than those that are packed now; use another "
                                      "folder",
                                      what));
}

void write_meaning(const std::string& path, const std::string& text, const std::string& what) {
  check_meaning(path, text, what);
  if (!fs::exists(path)) replace_durably(path, text);
}

void save_pack_state(const PackState& state, const std::string& path) {
  Json json = {{"plan", Json::parse(state.plan)}, {"done", state.done}, {"shards", Json::array()}};
  for (const PackedShard& shard : state.shards) json["shards"].push_back(json_of(shard));
  replace_durably(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace trireme::data
