// The environment variables of a launcher: NAME=VALUE, one per line. Other names are ignored.
#include <cstdlib>
#include <sstream>

#include "comm/world.h"
#include "tests/fuzz/fuzz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::istringstream lines{std::string(trireme::fuzz::text_of(data, size))};
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    const size_t equals = line.find('=');
    const std::string name = line.substr(0, equals);
    if (equals == std::string::npos || line.find('\0') != std::string::npos) continue;
    if (!name.starts_with("OMPI_") && !name.starts_with("PMI") && !name.starts_with("SLURM_")) {
      continue;
    }
    setenv(name.c_str(), line.c_str() + equals + 1, 1);
    names.push_back(name);
  }
  trireme::fuzz::require(!trireme::comm::detect_launcher().name.empty(), "a launcher has a name");
  for (const std::string& name : names) unsetenv(name.c_str());
  return 0;
}
