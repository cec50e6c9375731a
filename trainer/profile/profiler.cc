#include "trainer/profile/profiler.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include "comm/control.h"
#include "core/file.h"
#include "core/version.h"
#include "trainer/config/grid.h"
#include "trainer/profile/table.h"
#include "trainer/step/step_probe.h"

namespace trireme::train {
namespace {

namespace fs = std::filesystem;

// Writes a trace rank by rank, since the traces of all ranks may not fit into memory. Reports
// errors only at the end, so that all ranks stay in the same collectives.
class TraceFile {
 public:
  explicit TraceFile(const fs::path& path) {
    attempt([&] { file_.emplace(path); });
    write(trace_head());
  }
  void add(const RankTrace& trace) {
    write(trace_events(trace, first_));
    first_ = false;
  }
  // Returns the first error, or "".
  std::string finish(const nlohmann::json& metadata) {
    write(trace_tail(metadata));
    attempt([&] { file_->finish(); });
    return problem_;
  }

 private:
  void write(const std::string& text) {
    attempt([&] { file_->write(text); });
  }
  template <class F>
  void attempt(F&& work) {
    if (!problem_.empty()) return;
    try {
      work();
    } catch (const Error& error) {
      problem_ = error.what();
    }
  }

  std::optional<NewFile> file_;
  std::string problem_;
  bool first_ = true;
};

}  // namespace

Profiler::Profiler(ProfileOptions options, const Config& config, comm::Communicator& communicator,
                   Step& step, data::Loader* loader, fs::path folder)
    : options_(std::move(options)),
      config_(config),
      communicator_(communicator),
      step_(step),
      loader_(loader),
      folder_(std::move(folder)) {}

bool Profiler::opens_before(int64_t step) const {
  return seen_.last == 0 && !is_open() && step >= options_.window.first &&
         step <= options_.window.last;
}

void Profiler::open() {
  step_.profile(true);
  device_uncertainty_ = step_.probe()->uncertainty();
  clocks_ = measure_clocks(communicator_);
  // The time of the trace begins when the first rank has opened the window.
  const int64_t own_ahead = clocks_[communicator_.rank()].ahead;
  const int64_t opened =
      std::chrono::nanoseconds(step_.probe()->origin_time().time_since_epoch()).count() - own_ahead;
  int64_t zero = opened;
  for (const std::string& text : all_gather(communicator_, std::to_string(opened))) {
    zero = std::min<int64_t>(zero, std::stoll(text));
  }
  const std::vector<std::string> buckets = step_.communicator().ledger().bucket_names();
  collector_ = std::make_unique<TraceCollector>(
      step_, communicator_.placement(), step_.backend().device(), buckets,
      Clock::time_point(std::chrono::nanoseconds(zero + own_ahead)));
  if (loader_) loader_->enable_journal(true);
}

void Profiler::fetched(int64_t step, Clock::time_point asked) {
  collector_->fetched(step, asked, Clock::now());
}

void Profiler::done(int64_t step, const StepTimeline& timeline) {
  if (seen_.first == 0) seen_.first = step;
  seen_.last = step;
  collector_->done(step, timeline);
}

Profiler::Outcome Profiler::close() {
  if (loader_) {
    loader_->enable_journal(false);
    collector_->read(loader_->take_journal());
  }
  step_.profile(false);
  const std::string own = to_text(collector_->trace());
  collector_.reset();

  std::optional<TraceFile> file;
  if (communicator_.rank() == 0) file.emplace(folder_ / "trace.json");
  const int ranks = communicator_.size();
  std::vector<CostSum> stages(static_cast<size_t>(step_.stage().grid.stages));
  for (int rank = 0; rank < ranks; ++rank) {
    const std::string text =
        broadcast(communicator_, rank == communicator_.rank() ? own : "", rank);
    if (!file) continue;
    const RankTrace trace = rank_trace_from(text);
    file->add(trace);
    stages[static_cast<size_t>(grid_of(config_.run, rank, ranks).stage)].add(trace);
  }
  const Peaks peaks = mean_peaks();
  if (!file) return {};
  std::vector<StepCosts> costs;
  for (const CostSum& stage : stages) costs.push_back(stage.mean());
  Outcome outcome{cost_table(costs, peaks, title()), file->finish(metadata(peaks))};
  try {
    replace_durably(folder_ / "profile.txt", outcome.table);
  } catch (const Error& error) {
    if (outcome.problem.empty()) outcome.problem = error.what();
  }
  return outcome;
}

std::string Profiler::why_nothing() const {
  if (seen_.last > 0) return {};
  return fmt::format("nothing was profiled: the run had no {}", to_string(options_.window));
}

Peaks Profiler::mean_peaks() {
  Peaks own;
  if (options_.measure_peaks) {
    own = options_.measure_peaks(config_, communicator_, step_.backend());
  }
  std::array<double, 2> total{own.flops, own.bytes};
  comm::sum(communicator_, total);
  return {total[0] / communicator_.size(), total[1] / communicator_.size()};
}

std::string Profiler::title() const {
  return fmt::format("{}, {}, {} on {}", model_name(config_.run),
                     Precision_Name(config_.run.train().precision()), to_string(seen_),
                     step_.backend().device().description());
}

// Returns the metadata that viewers show with the trace.
nlohmann::json Profiler::metadata(const Peaks& peaks) const {
  nlohmann::json clocks = nlohmann::json::array();
  for (size_t rank = 0; rank < clocks_.size(); ++rank) {
    clocks.push_back({{"rank", rank},
                      {"ahead_of_rank_0_ns", clocks_[rank].ahead},
                      {"uncertainty_ns", clocks_[rank].uncertainty}});
  }
  const bool replays =
      step_.backend().device().kind() != DeviceKind::kCpu && !config_.run.train().eager();
  return {{"program", std::string("trireme ") + version()},
          {"model", model_name(config_.run)},
          {"precision", Precision_Name(config_.run.train().precision())},
          {"ranks", communicator_.size()},
          {"steps", to_string(seen_)},
          {"queued", replays ? "eagerly; other steps of this run are replayed as one recording"
                             : "as all steps of this run"},
          {"clocks", clocks},
          {"device_clock_uncertainty_ns", 1e9 * device_uncertainty_},
          {"peak_flops_per_second", peaks.flops},
          {"peak_bytes_per_second", peaks.bytes}};
}

}  // namespace trireme::train
