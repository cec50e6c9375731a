// The page that `trireme report` writes: one file of HTML with its style, its script and the runs'
// numbers in it. It loads nothing.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "trainer/report/run_records.h"

namespace trireme::cli {

// What the page draws, see page.js. Long series are decimated to a few thousand points, so that its
// size does not depend on the length of a run.
nlohmann::ordered_json report_data(std::span<const train::RunRecords> runs);

// The whole file.
std::string report_page(std::span<const train::RunRecords> runs);

}  // namespace trireme::cli
