// Assignments on the command line (--set a.b.c=value), one per line.
#include <sstream>
#include <vector>

#include "tests/fuzz/fuzz.h"
#include "trainer/config/config.h"

namespace {

constexpr const char* kConfig = R"(
model { network { layer { dense { units: 4 } } } }
data { synthetic { shape: [8] } }
batch { global: 64 }
train { epochs: 3 }
schedule { learning_rate: 0.1 }
)";

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::vector<std::string> assignments;
  std::istringstream lines{std::string(trireme::fuzz::text_of(data, size))};
  for (std::string line; std::getline(lines, line);) assignments.push_back(line);
  trireme::fuzz::accept_or_throw<trireme::ConfigError>(
      [&] { trireme::train::parse_config(kConfig, "run.txtpb", assignments); });
  return 0;
}
