// `trireme report`: writes runs as one HTML page.
#include "launch/report/report.h"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <vector>

#include "core/file.h"
#include "core/text.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/message.h"
#include "launch/output_file.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct ReportOptions {
  std::vector<std::string> runs;
  std::string out;

  fs::path path() const {
    if (!out.empty()) return out;
    return runs.size() == 1 ? fs::path(runs[0]) / "report.html" : "report.html";
  }
};

void write_report(const ReportOptions& options) {
  std::vector<train::RunRecords> runs;
  const fs::path path = options.path();
  for (const std::string& folder : options.runs) {
    require_another_file(path.string(), train::RunFolder{folder});
    runs.push_back(train::read_run(folder));
    require_another_file(path.string(), runs.back().config);
    for (const std::string& problem : runs.back().problems) {
      print_message("warning: {}: {}\n", folder, problem);
    }
  }
  const std::string page = report_page(runs);
  replace_durably(path, page);
  print_message("{}: {} run{}, {}\n", path.string(), runs.size(), runs.size() == 1 ? "" : "s",
                format_bytes(static_cast<double>(page.size())));
}

}  // namespace

void add_report(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<ReportOptions>();
  ArgumentParser command = app.add_command("report",
                                           "Write an HTML report on one or several runs\n"
                                           "The HTML file is self-contained. Runs may still be in "
                                           "progress, or have failed. The curves of "
                                           "several runs are overlaid.");
  command.add_option("RUN", options->runs, "Folders of runs").required();
  command.add_option("-o,--out", options->out,
                     "File to write (default: report.html in the run's folder, or in the current "
                     "folder for several runs)");
  command.epilog(R"(Examples:
  trireme report runs/digits
  trireme report runs/a runs/b --out both.html
)");
  command.on_chosen([options, &chosen] {
    chosen.run = on_one_rank([options] {
      write_report(*options);
      return static_cast<int>(ExitCode::kDone);
    });
  });
}

}  // namespace trireme::cli
