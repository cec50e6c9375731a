#include "trainer/optimizer/epochs.h"

#include <algorithm>

namespace trireme::train {

int64_t Epochs::steps_left(SamplePosition from) const {
  return (std::max<int64_t>(0, samples_ - from.sample) + batch_ - 1) / batch_;
}

SamplePosition Epochs::after(SamplePosition from, int64_t steps) const {
  const int64_t left = steps_left(from);
  if (steps < left) return {from.epoch, from.sample + steps * batch_};
  return {from.epoch + 1 + (steps - left) / this->steps(), (steps - left) % this->steps() * batch_};
}

int64_t Epochs::steps_until(SamplePosition from, int64_t epochs) const {
  return epochs > from.epoch ? steps_left(from) + (epochs - from.epoch - 1) * steps() : 0;
}

double Epochs::in_steps(SamplePosition position) const {
  return static_cast<double>(position.epoch) * static_cast<double>(steps()) +
         static_cast<double>(position.sample) / static_cast<double>(batch_);
}

double Epochs::in_epochs(SamplePosition position) const {
  return static_cast<double>(position.epoch) +
         static_cast<double>(position.sample) / static_cast<double>(samples_);
}

}  // namespace trireme::train
