// Process groups: which ranks of the world a communicator joins.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace trireme::comm {

struct Group {
  static constexpr uint64_t kWorld = 1;

  uint64_t id = kWorld;    // never 0; the same on all members, and of no other group of the run
  std::vector<int> ranks;  // of the world, by rank of the group; empty: the same numbers
  std::string name;        // "ranks 0 and 2"; empty where all ranks of the world are members

  // A number that is no rank of the group stays as it is.
  int world_rank(int rank) const;
};

Group world_group(int ranks);

// The group of these ranks of the world, all members of the parent. Its id follows from the
// arguments alone: members find the same without asking, and groups of one parent differ in their
// numbers or in their ranks.
Group subgroup(const Group& parent, uint64_t number, std::vector<int> ranks);

// "rank 0", "ranks 0, 1 and 2", "ranks 0, 1, 2, 3 and 28 more"
std::string name_ranks(const std::vector<int>& ranks);

}  // namespace trireme::comm
