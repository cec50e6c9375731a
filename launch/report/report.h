// The page that `trireme report` writes: one self-contained HTML file with its style, its script
// and the data of the runs.
#pragma once

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "trainer/report/run_records.h"

namespace trireme::cli {

// Returns the data that page.js draws. Long series are decimated to a few thousand points, so that
// the size of the page does not depend on the length of a run.
nlohmann::ordered_json report_data(std::span<const train::RunRecords> runs);

// Returns the complete file.
std::string report_page(std::span<const train::RunRecords> runs);

}  // namespace trireme::cli
