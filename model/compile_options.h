// What a Program computes, and for how many samples.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/collective.h"
#include "core/dtype.h"

namespace trireme::model {

// A pipeline stage (stages.h): consecutive nodes of the graph.
struct Stage {
  std::vector<int> begins;  // the first node of each stage but the first, ascending
  int index = 0;            // of this stage

  bool is_whole() const { return begins.empty(); }
  int count() const { return static_cast<int>(begins.size()) + 1; }
};

struct CompileOptions {
  int64_t batch = 1;          // rows of a micro-batch
  bool training = true;       // false: only forward, with running statistics
  DType dtype = DType::kF32;  // compute dtype; ignored if `parameters` are filled in already
  // Adds gradients to the contents of the gradient array instead of overwriting it.
  bool accumulate = false;
  // Inference only: writes the input of the loss (logits, or predicted numbers) to Port::kOutput.
  bool output = false;
  // Inference only: false leaves out the loss, so that no targets are read and no metrics written.
  bool loss = true;
  // Inference only, for networks whose layers are all causal: if positive, a pass reads this many
  // tokens of each sequence after those of earlier passes, whose keys and values it finds in
  // Port::kCache. 0: a pass reads whole sequences.
  int64_t part = 0;
  // Whole sequences only: recurrent layers with `stateful` begin with the states in
  // Port::kStatesBefore and write those after the last row to Port::kStatesAfter. If false, they
  // begin with 0.
  bool carry_states = false;
  // Training only: chooses the ends of gradient buckets (Parameters::bucket_ends) among the ends of
  // gradients, which ascend. If empty, there is one bucket.
  std::function<std::vector<int64_t>(std::span<const int64_t> ends)> bucket_ends = {};
  // The size of each bucket is padded to a multiple of this number of elements, so that it can be
  // divided among ranks.
  int64_t bucket_multiple = 1;
  // Training only: if positive and the activations need more bytes, operations of the forward pass
  // run again in the backward pass until the activations fit, or as little as is possible.
  size_t activation_limit = 0;
  // Training only: if true, the gradients of a bucket have memory (ModelArrays::buckets) from the
  // first operation that writes one until the gradients of the next bucket are final. The gradient
  // array then holds only the metrics.
  bool transient_gradients = false;
  // Compiles one stage of the network, which exchanges values with others through ports.
  Stage stage = {};
  // Used by layers that communicate (sync batch norm); null if there is only one rank.
  Collective* collective = nullptr;
};

}  // namespace trireme::model
