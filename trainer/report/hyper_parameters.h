// The configuration as a list of values that runs can be sorted and compared by.
#pragma once

#include <map>
#include <string>

#include "trainer/config/config.pb.h"
#include "trainer/report/metrics.h"

namespace trireme::train {

// By field path ("optimizer.sgd.momentum"): what is set, but for where results go and for the
// layers of a network of one's own, which are no parameters. Of a choice that has no fields its
// name is there ("schedule.constant": true).
std::map<std::string, HyperParameter> hyper_parameters(const RunConfig& config);

}  // namespace trireme::train
