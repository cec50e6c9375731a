// The label of what does not count in the loss and in metrics, as in torch.nn.CrossEntropyLoss.
// Datasets mark padding with it.
#pragma once

#include <cstdint>

namespace trireme {

inline constexpr int32_t kIgnoredLabel = -100;

}  // namespace trireme
