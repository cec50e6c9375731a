#include "trainer/run/run_stop.h"

#include "comm/control.h"
#include "trainer/run/last_words.h"

namespace trireme::train {

RunStop::RunStop(comm::Communicator& communicator, StopSignals* signals)
    : communicator_(communicator), signals_(signals) {
  prepare_last_words({});
}

RunStop::~RunStop() {
  if (signals_) signals_->at_deadline({});
}

void RunStop::prepare_last_words(const std::filesystem::path& checkpoints) {
  if (!signals_) return;
  signals_->at_deadline([&communicator = communicator_, checkpoints](double grace) {
    say_last_words(communicator, checkpoints, grace);
  });
}

bool RunStop::agree() {
  double told = requested() ? 1 : 0;
  comm::sum(communicator_, {&told, 1});
  if (told > 0) stop();
  return stopped_;
}

void RunStop::stop() {
  stopped_ = true;
  if (signals_) signals_->follow();
}

}  // namespace trireme::train
