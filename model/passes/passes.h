// Rewrites of a graph that change its cost and not its result.
#pragma once

namespace trireme {

struct Graph;

// Takes out layers that only hand their input on.
void elide_identities(Graph& graph);
// Takes out layers that nothing on the way to the loss reads.
void remove_unread(Graph& graph);
// Lets each layer absorb the one that alone reads it: batch norm + add + ReLU, convolution or dense
// + activation.
void fuse(Graph& graph);

}  // namespace trireme
