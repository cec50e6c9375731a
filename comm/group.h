// Process groups: the subset of the world's ranks that a communicator connects.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::comm {

struct Group {
  static constexpr uint64_t kWorld = 1;

  uint64_t id = kWorld;    // never 0; equal on all members and unique among the groups of the run
  std::vector<int> ranks;  // rank of the world by rank of the group; empty if they are equal
  std::string name;        // "ranks 0 and 2"; empty if all ranks of the world are members

  // Converts a rank of this group to a rank of the world. Returns `rank` itself if the group has no
  // such member.
  int world_rank(int rank) const;
};

Group world_group(int ranks);

// Returns the group of these ranks of the world, which must be members of `parent`. Its id depends
// on the arguments alone, so that all members compute the same one without communication. Groups of
// one parent must differ in `number` or `ranks`.
Group subgroup(const Group& parent, uint64_t number, std::vector<int> ranks);

// Returns e.g. "rank 0", "ranks 0, 1 and 2" or "ranks 0, 1, 2, 3 and 28 more".
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace trireme::comm
