#include <fmt/chrono.h>

#include <ctime>
#include <string_view>

#include "launch/report/report.h"
#include "trainer/base/json.h"

namespace trireme::cli {

extern const std::string_view
    kReportTemplate;  // page.html with style and scripts in it, see embed.cmake

namespace {

constexpr std::string_view kDataMark = "{{data}}";

// JSON that stays within a <script> element of HTML, whatever names are in it.
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
  const size_t mark = kReportTemplate.find(kDataMark);
  std::string page{kReportTemplate.substr(0, mark)};
  page += embedded(data);
  page += kReportTemplate.substr(mark + kDataMark.size());
  return page;
}

}  // namespace trireme::cli
