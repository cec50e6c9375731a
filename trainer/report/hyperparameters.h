// The configuration as a flat list of values, which TensorBoard uses to sort and compare runs.
#pragma once

#include <map>
#include <string>

#include "trainer/config/config.pb.h"
#include "trainer/report/metrics.h"

namespace trireme::train {

// Returns the fields that are set, by field path ("optimizer.sgd.momentum"). Leaves out `run_dir`
// and `metrics`, which only say where results go, and repeated messages, such as the layers of a
// custom network. An empty message counts as true ("schedule.constant": true).
std::map<std::string, Hyperparameter> hyperparameters(const RunConfig& config);

}  // namespace trireme::train
