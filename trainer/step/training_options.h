// How the training program of a run is compiled.
#pragma once

#include "model/compile_options.h"
#include "trainer/config/config.h"
#include "trainer/step/batch_plan.h"

namespace trireme::train {

// Returns the options for a run with this number of ranks, without CompileOptions::collective.
model::CompileOptions training_options(const Config& config, const BatchPlan& batch, int ranks);

}  // namespace trireme::train
