// Rewrites of a graph that change its cost and not its result, and what of it is trained.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/weights.h"

namespace trireme::model {

struct Graph;

// Takes out layers that only hand their input on.
void elide_identities(Graph& graph);
// Takes out layers that nothing on the way to the loss reads.
void remove_unread(Graph& graph);
// Lets each layer absorb the one that alone reads it: batch norm + add + ReLU, convolution or dense
// + activation.
void fuse(Graph& graph);
// Freezes the parameters whose whole names these regular expressions match. Throws ConfigError when
// one is none, or matches nothing, or when nothing is left to be trained.
void freeze(Graph& graph, std::span<const std::string> patterns);
// For inference: lets each convolution do the work of the batch norm that alone reads it, with
// weights and a bias that do both. Norms that have absorbed a residual sum stay: they are that
// sum's one pass over memory anyway.
void fold_batch_norms(Graph& graph, Weights& weights);

// --- For passes.
// Nodes that read this one, once for each time that they do.
std::vector<int> readers(const Graph& graph, int node);
// Takes node `gone` out; whoever read it reads `instead`, which comes before it in the list.
void remove_node(Graph& graph, int gone, int instead);

}  // namespace trireme::model
