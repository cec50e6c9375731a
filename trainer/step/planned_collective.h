// Stands for the ranks of a run where its programs are compiled by one rank, without the others.
#pragma once

#include "core/collective.h"

namespace trireme::train {

// Sums nothing, so a program may also run, to measure what it computes.
class PlannedCollective final : public Collective {
 public:
  explicit PlannedCollective(int ranks) : ranks_(ranks) {}
  int size() const override { return ranks_; }
  void all_reduce_sum(void*, int64_t, DType, Stream&, CallTag) override {}

 private:
  int ranks_;
};

}  // namespace trireme::train
