#include "model/passes/passes.h"

#include <vector>

#include "model/graph.h"

namespace trireme::model {

void remove_node(Graph& graph, int removed, int replacement) {
  graph.nodes.erase(graph.nodes.begin() + removed);
  for (Node& node : graph.nodes) {
    for (int& input : node.inputs) {
      if (input == removed) input = replacement;
      if (input > removed) --input;
    }
  }
}

std::vector<int> readers(const Graph& graph, int node) {
  std::vector<int> found;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::vector<int>& inputs = graph.nodes[n].inputs;
    for (int input : inputs) {
      if (input == node) found.push_back(static_cast<int>(n));
    }
  }
  return found;
}

void elide_identities(Graph& graph) {
  for (int n = 0; n < static_cast<int>(graph.nodes.size());) {
    const Node& node = graph.nodes[n];
    if (node.layer->is_identity()) {
      remove_node(graph, n, node.inputs[0]);
    } else {
      ++n;
    }
  }
}

void remove_unused(Graph& graph) {
  for (int n = static_cast<int>(graph.nodes.size()) - 2; n >= 0; --n) {
    if (readers(graph, n).empty()) remove_node(graph, n, -1);
  }
}

void fuse(Graph& graph) {
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    // A layer may be fused with several others in turn. Each time it moves to the place of the
    // other layer, so that it still comes after all of its inputs.
    const std::vector<int> read_by = readers(graph, n);
    if (read_by.size() != 1) continue;
    const int next = read_by[0];
    Node& reader = graph.nodes[next];
    Node& node = graph.nodes[n];
    if (!node.layer->fuse(*reader.layer)) continue;
    node.fused.push_back(reader.name);
    node.signature.output = reader.signature.output;
    for (int input : reader.inputs) {
      if (input != n) node.inputs.push_back(input);
    }
    std::swap(node, reader);
    remove_node(graph, n, next);
    --n;
  }
}

}  // namespace trireme::model
