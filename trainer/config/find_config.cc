#include "trainer/config/find_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "core/installation.h"
#include "core/text.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

constexpr const char* kConfigs = "configs";  // under share_folder()

}  // namespace

std::vector<std::string> installed_configs() {
  const fs::path share = share_folder();
  if (share.empty()) return {};
  std::vector<std::string> names;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator(share / kConfigs, none)) {
    if (entry.path().extension() == ".txtpb") names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

std::string suggest_config(const std::string& name) {
  std::vector<std::string> stems;
  for (const std::string& config : installed_configs()) stems.push_back(fs::path(config).stem());
  const std::string found = nearest(fs::path(name).stem().string(), stems);
  return found.empty() ? "" : fmt::format("; did you mean '{}.txtpb'?", found);
}

std::string find_config(const std::string& name) {
  return fs::path(name).has_parent_path() ? name : find_shared(name, kConfigs);
}

}  // namespace trireme::train
