#include "trainer/run/run_stop.h"

#include <cstdio>

#include "comm/control.h"
#include "trainer/run/missed_deadline.h"

namespace trireme::train {

RunStop::RunStop(comm::Communicator& communicator, StopSignals* signals)
    : communicator_(communicator), signals_(signals) {
  set_checkpoint_folder({});
}

RunStop::~RunStop() {
  if (!signals_) return;
  signals_->on_deadline([](double grace) {
    std::fprintf(stderr,
                 "trireme: still running %g s after the request to stop; nothing is left to save\n",
                 grace);
    return ExitCode::kResumable;
  });
}

void RunStop::set_checkpoint_folder(const std::filesystem::path& checkpoints) {
  if (!signals_) return;
  signals_->on_deadline([missed = MissedDeadline(communicator_, checkpoints)](double grace) {
    return missed.report(grace);
  });
}

bool RunStop::agree() {
  double requests = requested() ? 1 : 0;
  comm::sum(communicator_, {&requests, 1});
  if (requests > 0) stop();
  return stopped_;
}

void RunStop::stop() {
  stopped_ = true;
  if (signals_) signals_->request_by_peer();
}

}  // namespace trireme::train
