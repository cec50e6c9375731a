#include "comm/group.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/random.h"

namespace trireme::comm {
namespace {

constexpr size_t kMaxNamed = 4;

uint64_t combine(uint64_t hash, uint64_t value) {
  return mix64((hash ^ value) + 0x9E3779B97F4A7C15);
}

}  // namespace

int Group::world_rank(int rank) const {
  return rank >= 0 && rank < std::ssize(ranks) ? ranks[rank] : rank;
}

Group world_group(int ranks) {
  Group world;
  world.ranks.resize(ranks);
  std::iota(world.ranks.begin(), world.ranks.end(), 0);
  return world;
}

Group subgroup(const Group& parent, uint64_t number, std::vector<int> ranks) {
  uint64_t hash = combine(parent.id, number);
  for (const int rank : ranks) hash = combine(hash, static_cast<uint64_t>(rank));
  Group group;
  // Messages of the side channel can only hold numbers below 2^60.
  group.id = std::max(hash >> 4, Group::kWorld + 1);
  if (!parent.name.empty() || ranks.size() != parent.ranks.size()) group.name = name_ranks(ranks);
  group.ranks = std::move(ranks);
  return group;
}

std::string name_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const size_t named = ranks.size() <= kMaxNamed + 1 ? ranks.size() : kMaxNamed;
  for (size_t i = 0; i < named; ++i) {
    if (i > 0) text += i + 1 == ranks.size() ? " and " : ", ";
    text += std::to_string(ranks[i]);
  }
  if (named < ranks.size()) text += fmt::format(" and {} more", ranks.size() - named);
  return text;
}

}  // namespace trireme::comm
