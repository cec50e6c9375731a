#include <fmt/chrono.h>

#include <ctime>
#include <string_view>

#include "launch/report/report.h"
#include "trainer/base/json.h"

namespace trireme::cli {

extern const std::string_view kReportTemplate;  // page.html with style and scripts, see page.cmake

namespace {

constexpr std::string_view kDataPlaceholder = "{{data}}";

// Returns JSON that is safe within a <script> element, even if it contains hostile names.
std::string embedded(const nlohmann::ordered_json& data) {
  const std::string plain = train::json_text(data);
  std::string text;
  text.reserve(plain.size());
  for (const char c : plain) {
    if (c == '<' || c == '>' || c == '&') {
      text += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

std::string report_page(std::span<const train::RunRecords> runs) {
  nlohmann::ordered_json data = report_data(runs);
  data["written"] = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
  const size_t at = kReportTemplate.find(kDataPlaceholder);
  std::string page{kReportTemplate.substr(0, at)};
  page += embedded(data);
  page += kReportTemplate.substr(at + kDataPlaceholder.size());
  return page;
}

}  // namespace trireme::cli
