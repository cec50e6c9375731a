// A stretch of time, in seconds after a moment that is agreed on elsewhere.
#pragma once

namespace trireme {

struct TimeSpan {
  double begin = 0;
  double end = 0;
  double seconds() const { return end - begin; }
};

}  // namespace trireme
