#include "model/passes/passes.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "model/graph.h"

namespace trireme::model {

std::vector<std::vector<int>> readers(const Graph& graph) {
  std::vector<std::vector<int>> found(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    for (const int input : graph.nodes[n].inputs) {
      if (input >= 0) found[static_cast<size_t>(input)].push_back(static_cast<int>(n));
    }
  }
  return found;
}

std::vector<int> all_places(const Graph& graph) {
  std::vector<int> places(graph.nodes.size());
  std::iota(places.begin(), places.end(), 0);
  return places;
}

void remove_nodes(Graph& graph, const std::vector<int>& replacements) {
  std::vector<int> places(graph.nodes.size());
  std::vector<Node> kept;
  for (size_t n = 0; n < places.size(); ++n) {
    const int read = replacements[n];
    if (read == static_cast<int>(n)) {
      places[n] = static_cast<int>(kept.size());
      kept.push_back(std::move(graph.nodes[n]));
    } else {
      places[n] = read < 0 ? -1 : places[static_cast<size_t>(read)];
    }
  }
  graph.nodes = std::move(kept);
  for (Node& node : graph.nodes) {
    for (int& input : node.inputs) input = input < 0 ? -1 : places[static_cast<size_t>(input)];
  }
}

void elide_identities(Graph& graph) {
  std::vector<int> replacements = all_places(graph);
  for (size_t n = 0; n < replacements.size(); ++n) {
    if (graph.nodes[n].layer->is_identity()) replacements[n] = graph.nodes[n].inputs[0];
  }
  remove_nodes(graph, replacements);
}

void remove_unused(Graph& graph) {
  std::vector<int> replacements = all_places(graph);
  std::vector<size_t> reads;
  for (const std::vector<int>& read_by : readers(graph)) reads.push_back(read_by.size());
  for (size_t n = graph.nodes.size() - 1; n-- > 0;) {
    if (reads[n] > 0) continue;
    replacements[n] = -1;
    for (const int input : graph.nodes[n].inputs) {
      if (input >= 0) --reads[static_cast<size_t>(input)];
    }
  }
  remove_nodes(graph, replacements);
}

void fuse(Graph& graph) {
  std::vector<int> replacements = all_places(graph);
  std::vector<std::vector<int>> read_by = readers(graph);
  for (int n = 0; n < static_cast<int>(graph.nodes.size()); ++n) {
    // A layer may be fused with several others in turn. Each time it moves to the place of the
    // other layer, so that it still comes after all of its inputs.
    if (read_by[n].size() != 1) continue;
    const int next = read_by[n][0];
    Node& reader = graph.nodes[next];
    Node& node = graph.nodes[n];
    if (!node.layer->fuse(*reader.layer)) continue;
    node.fused.push_back(reader.name);
    node.signature.output = reader.signature.output;
    for (const int input : node.inputs) {
      if (input >= 0) std::ranges::replace(read_by[input], n, next);
    }
    for (int input : reader.inputs) {
      if (input != n) node.inputs.push_back(input);
    }
    std::swap(node, reader);
    replacements[n] = -1;  // nothing reads it anymore
  }
  remove_nodes(graph, replacements);
}

}  // namespace trireme::model
