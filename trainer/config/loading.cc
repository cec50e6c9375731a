#include "trainer/config/loading.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>

#include "comm/ledger.h"
#include "model/graph.h"
#include "trainer/config/grid.h"

namespace trireme::train {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kReportPeriod = std::chrono::seconds(2);

// Returns a callback for data::LoaderOptions::progress that sets the ledger's detail, so that the
// diagnosis of a stalled run names the file that a data thread waits for.
std::function<void(std::string_view)> waiting_progress(comm::Ledger& ledger) {
  return
      [&ledger](std::string_view text) { ledger.set_detail(fmt::format("waiting for {}", text)); };
}

// Throws ConfigError if the run cannot carry states from sample to sample.
void require_streams(const Config& config) {
  const DataConfig& data = config.run.data();
  const auto refuse = [&](const char* field, const std::string& why) {
    throw ConfigError(config.where(field), why +
                                               " with stateful layers, which read consecutive "
                                               "samples");
  };
  if (!data.has_text() && !data.has_tokens()) {
    throw ConfigError(config.where("model"),
                      "stateful layers carry their state from sample to sample, which requires "
                      "data.text or data.tokens");
  }
  if (data.has_shuffle() && data.shuffle()) refuse("data.shuffle", "samples cannot be shuffled");
  if (data.sampling() != DataConfig::EACH_ONCE) refuse("data.sampling", "cannot be set");
  if (data.has_shuffle_window()) refuse("data.shuffle_window", "cannot be set");
  if (data.on_bad_record() == DataConfig::SKIP) {
    refuse("data.on_bad_record", "records cannot be skipped");
  }
  if (config.run.parallel().stages() > 1) {
    throw ConfigError(config.where("parallel.stages"),
                      "stateful layers cannot be trained in pipeline stages");
  }
}

data::OrderOptions stream_order(const Config& config) {
  require_streams(config);
  data::OrderOptions order;
  order.shuffle = false;
  order.streams = config.run.batch().global();
  return order;
}

}  // namespace

int loader_threads(const Config& config, bool in_memory, int spare_cores) {
  const DataConfig& data = config.run.data();
  if (data.has_threads()) return data.threads();
  return in_memory && !data.has_mix() ? 0 : spare_cores;
}

int batches_in_memory(const Config& config, int threads) {
  return threads == 0 ? 1 : config.run.data().prefetch();
}

data::LoaderOptions loader_options(const Config& config, comm::Communicator& communicator,
                                   const data::Dataset& dataset, int spare_cores) {
  data::LoaderOptions options;
  options.seed = config.run.seed();
  const Grid grid = grid_of(config.run, communicator.rank(), communicator.size());
  options.rank = grid.replica;
  options.ranks = grid.replicas;
  options.threads = loader_threads(config, dataset.in_memory(), spare_cores);
  options.depth = batches_in_memory(config, options.threads);
  options.max_bad_records = data::bad_record_limit(config.run.data());
  options.progress = waiting_progress(communicator.ledger());
  return options;
}

data::OrderOptions training_order(const Config& config, const data::Dataset& training) {
  if (model::is_stateful(config.run.model())) return stream_order(config);
  try {
    return data::order_options(config.run.data(), training);
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

std::string padding_text(const Config& config, const data::OrderOptions& order) {
  if (!order.buckets) return "";
  std::vector<int64_t> ends = order.buckets->ends();
  const int64_t longest = ends.back();
  ends.pop_back();
  const data::LengthBuckets::Waste waste =
      order.buckets->waste({.seed = config.run.seed(), .epoch = 0, .shuffle = order.shuffle},
                           config.run.batch().global());
  return fmt::format("{}{}{} tokens, of which {:.0f}% are padding ({:.0f}% with {})",
                     fmt::join(ends, ", "), ends.empty() ? "" : " or ", longest,
                     100 * waste.share(), 100 * waste.share_of_whole(), longest);
}

std::unique_ptr<data::Mix> make_mix(const Config& config, const data::SampleSpec& spec) {
  if (!config.run.data().has_mix()) return nullptr;
  try {
    return std::make_unique<data::Mix>(config.run.data().mix(), config.run.seed(), spec);
  } catch (const ConfigError& error) {
    throw config.located(error);
  }
}

std::function<void(std::string_view)> opening_progress(comm::Communicator& communicator) {
  return [&ledger = communicator.ledger(), prints = communicator.rank() == 0,
          next = Clock::now() + kReportPeriod](std::string_view text) mutable {
    ledger.set_detail(text);
    if (!prints || Clock::now() < next) return;
    next = Clock::now() + kReportPeriod;
    std::fprintf(stderr, "data: %.*s\n", static_cast<int>(text.size()), text.data());
  };
}

}  // namespace trireme::train
