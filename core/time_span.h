// A time interval, in seconds since a reference point that its users agree on.
#pragma once

namespace trireme {

struct TimeSpan {
  double begin = 0;
  double end = 0;
  double seconds() const { return end - begin; }
};

}  // namespace trireme
