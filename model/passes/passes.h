// Passes that rewrite a graph: optimizations that do not change its result, and freezing.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "model/weights.h"

namespace trireme::model {

struct Graph;

// Removes layers whose output is their input.
void elide_identities(Graph& graph);
// Removes layers that the loss does not depend on.
void remove_unused(Graph& graph);
// Fuses layers with their only reader where possible: batch norm + add + ReLU, convolution or dense
// + activation.
void fuse(Graph& graph);
// Freezes the parameters whose whole names match one of these regular expressions. Throws
// ConfigError if an expression is invalid or matches no parameter, or if no trained parameter
// remains.
void freeze(Graph& graph, std::span<const std::string> patterns);
// Used for inference. Folds each batch norm that is the only reader of a convolution into the
// convolution's weights and bias. Norms with a fused residual sum remain, since the sum needs a
// pass over memory anyway.
void fold_batch_norms(Graph& graph, Weights& weights);

// --- For passes.
// Returns for each node the nodes that read it, once for each input that does.
std::vector<std::vector<int>> readers(const Graph& graph);
// Returns the index of each node.
std::vector<int> all_places(const Graph& graph);
// Removes the nodes whose replacement is not their own index. Their readers read the replacement
// instead: a node that precedes them, or -1 for the network's input.
void remove_nodes(Graph& graph, const std::vector<int>& replacements);

}  // namespace trireme::model
