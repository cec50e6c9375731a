#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <vector>

#include "comm/control.h"
#include "core/file.h"
#include "core/random.h"
#include "core/text.h"
#include "data/sampler.h"
#include "launch/cli.h"
#include "launch/commands.h"
#include "launch/median.h"
#include "launch/options.h"
#include "launch/peak.h"
#include "launch/step_time.h"
#include "trainer/base/json.h"
#include "trainer/base/process.h"
#include "trainer/config/device.h"
#include "trainer/config/inputs.h"
#include "trainer/profile/profiler.h"
#include "trainer/run/train.h"
#include "trainer/step/parallel_choice.h"
#include "trainer/step/rank_consistency.h"
#include "trainer/step/step.h"

namespace trireme::cli {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

constexpr int kWarmupSteps = 3;  // after the first; a GPU records its CUDA graphs in them
constexpr int kEstimateSteps = 3;

struct BenchOptions : TargetOptions {
  int64_t steps = 0;
  double seconds = 3;
  bool json = false;
  std::string profile;
};

// A batch of random inputs and labels: the rank's share of a full batch.
struct SyntheticBatch {
  Buffer inputs;
  Buffer targets;
  data::Batch batch;

  SyntheticBatch(const data::SampleSpec& samples, const train::BatchPlan& plan,
                 const train::Grid& grid, Device& device) {
    const data::Share share = data::share_of(plan.global, grid.replica, grid.replicas);
    inputs = device.allocate_host(plan.capacity * samples.input.bytes());
    targets = device.allocate_host(plan.capacity * samples.target.bytes());
    const Random noise(1, RandomPurpose::kSynthetic, static_cast<uint64_t>(grid.replica));
    const int limit = std::max(1, samples.classes);
    const int tokens = samples.vocab_size > 0 ? static_cast<int>(samples.vocab_size) : limit;
    fill(inputs, samples.input.dtype, samples.input.dtype == DType::kI32 ? tokens : 256, noise);
    fill(targets, samples.target.dtype, limit, noise);
    batch = {.inputs = inputs.data(),
             .targets = targets.data(),
             .rows = share.rows,
             .first_row = share.begin,
             .global_rows = plan.global};
  }

 private:
  // Fills the buffer with floats in [0, 1) or integers in [0, limit).
  static void fill(const Buffer& buffer, DType dtype, int limit, const Random& noise) {
    const size_t size = size_of(dtype);
    for (size_t i = 0; i < buffer.bytes() / size; ++i) {
      const uint32_t bits = noise.bits(i);
      const int32_t integer = static_cast<int32_t>(bits % static_cast<uint32_t>(limit));
      const float real = uniform(bits);
      const void* value = dtype == DType::kF32 ? static_cast<const void*>(&real) : &integer;
      std::memcpy(buffer.data() + i * size, value, size);  // little-endian: u8 is the lowest byte
    }
  }
};

// Medians over a rank's steps, in seconds.
struct MeasuredSteps {
  int64_t steps = 0;
  double step = 0, fastest = 0, slowest = 0;
  double forward = 0, backward = 0, exposed = 0, update = 0, communication = 0;
  double idle = 0;        // waiting for other pipeline stages
  double first_step = 0;  // from the start of the process to the end of its first step
};

// Returns how many steps fit into `seconds`. Rank 0 decides for all ranks.
template <class Run>
int64_t steps_that_fit(double seconds, comm::Communicator& communicator, train::Step& step,
                       Run run) {
  const double each = mean_step_seconds(
      kEstimateSteps, run, [&] { step.finish(); }, train::seconds_since_start);
  const auto steps = static_cast<int64_t>(std::clamp(seconds / each, 5.0, 20000.0));
  return std::stoll(broadcast(communicator, std::to_string(steps), 0));
}

MeasuredSteps measure(const BenchOptions& options, comm::Communicator& communicator,
                      train::Step& step, const data::Batch& batch, float learning_rate) {
  MeasuredSteps result;
  int64_t launched = 0;
  const auto run = [&] { return step.run(batch, launched++, learning_rate); };
  run();
  step.finish();
  result.first_step = train::seconds_since_start();
  for (int i = 0; i < kWarmupSteps; ++i) run();
  result.steps =
      options.steps > 0 ? options.steps : steps_that_fit(options.seconds, communicator, step, run);
  step.finish();

  std::vector<double> total, forward, backward, exposed, update, communication, idle;
  auto start = Clock::now();
  const auto add = [&](const std::optional<train::StepResult>& done) {
    if (!done) return;  // a GPU returns the result of a step with the next one
    const train::StepTimings& timings = done->timings;
    const auto end = Clock::now();
    total.push_back(std::chrono::duration<double>(end - start).count());
    forward.push_back(timings.forward);
    backward.push_back(timings.backward);
    exposed.push_back(timings.exposed);
    update.push_back(timings.update);
    communication.push_back(timings.communication);
    idle.push_back(timings.idle);
    start = end;
  };
  for (int64_t i = 0; i < result.steps; ++i) add(run());
  add(step.finish());
  result.fastest = *std::min_element(total.begin(), total.end());
  result.slowest = *std::max_element(total.begin(), total.end());
  result.step = median(total);
  result.forward = median(forward);
  result.backward = median(backward);
  result.exposed = median(exposed);
  result.update = median(update);
  result.communication = median(communication);
  result.idle = median(idle);
  return result;
}

Json to_json(const MeasuredSteps& m) {
  return {{"step_ms", 1e3 * m.step},
          {"step_ms_min", 1e3 * m.fastest},
          {"step_ms_max", 1e3 * m.slowest},
          {"forward_ms", 1e3 * m.forward},
          {"backward_ms", 1e3 * m.backward},
          {"update_ms", 1e3 * m.update},
          {"exposed_comm_ms", 1e3 * m.exposed},
          {"comm_ms", 1e3 * m.communication},
          {"seconds_to_first_step", m.first_step}};
}

// Merges the results of the ranks: the step time of the slowest rank with its parts, the mean of
// the floating-point operations, and the maximum of all other values. Pipeline stages take equally
// long, so of them the slowest is the one that is idle for the shortest time.
Json merge(const std::vector<std::string>& ranks) {
  Json merged;
  for (const std::string& text : ranks) {
    const Json rank = Json::parse(text);
    if (merged.is_null()) {
      merged = rank;
      continue;
    }
    const bool slower = rank.contains("stage") ? rank["idle_ms"] < merged["idle_ms"]
                                               : rank["step_ms"] > merged["step_ms"];
    Json next = slower ? rank : merged;
    next["flops_per_step"] =
        train::to_number(rank["flops_per_step"]) + train::to_number(merged["flops_per_step"]);
    for (const char* key : {"floor_ms", "seconds_to_first_step", "peak_memory_bytes"}) {
      next[key] = std::max(train::to_number(rank[key]), train::to_number(merged[key]));
    }
    merged = next;
  }
  merged["flops_per_step"] =
      train::to_number(merged["flops_per_step"]) / static_cast<double>(ranks.size());
  merged["peak_memory_bytes"] = static_cast<int64_t>(train::to_number(merged["peak_memory_bytes"]));
  return merged;
}

void print_table(const Json& r) {
  const double step = r["step_ms"];
  const int ranks = r["ranks"];
  const int threads = r["threads"];
  fmt::print("{}, {}: {} rank{} x {} thread{}, {} samples per rank, {} steps\n\n",
             r["model"].get<std::string>(), r["precision"].get<std::string>(), ranks,
             ranks == 1 ? "" : "s", threads, threads == 1 ? "" : "s",
             r["batch_per_rank"].get<int64_t>(), r["steps"].get<int64_t>());
  const bool has_stages = r.contains("stage");
  if (has_stages)
    fmt::print("Pipeline stage {}, which waits least for others:\n", r["stage"].get<int>());
  const auto row = [&](const std::string& name, double ms) {
    fmt::print("  {:<24} {:>10.3f} ms {:>6.1f}%\n", name, ms, 100 * ms / step);
  };
  row("forward", r["forward_ms"]);
  row("backward", r["backward_ms"]);
  if (has_stages) row("idle: other stages", r["idle_ms"]);
  row("exposed communication", r["exposed_comm_ms"]);
  row("update", r["update_ms"]);
  row("step (median)", step);
  row("arithmetic floor", r["floor_ms"]);
  row("memory floor, unfused", r["memory_floor_ms"]);
  const std::string tokens =
      r.contains("tokens_per_second")
          ? fmt::format(" ({} tokens/s)", format_count(train::to_number(r["tokens_per_second"])))
          : "";
  fmt::print(
      "\n{:.1f} samples/s{}; a step took {:.3f} to {:.3f} ms. The times above are independent "
      "medians, so the parts need not add up to the step.\n",
      train::to_number(r["samples_per_second"]), tokens, train::to_number(r["step_ms_min"]),
      train::to_number(r["step_ms_max"]));
  if (ranks > 1) {
    fmt::print(
        "Communication took {:.3f} ms per step, including waiting for other ranks and the part "
        "that "
        "overlapped with computation.\n",
        train::to_number(r["comm_ms"]));
  }
  fmt::print(
      "Floor: {}FLOP per rank and step{} at {}FLOP/s, measured on this machine; model FLOPs "
      "utilization {:.0f}%. Peak memory {} per rank; first step after {:.2f} s.\n",
      format_count(train::to_number(r["flops_per_step"])), has_stages ? " on average" : "",
      format_count(train::to_number(r["peak_flops"])),
      100 * train::to_number(r["model_flops_utilization"]),
      format_bytes(train::to_number(r["peak_memory_bytes"])),
      train::to_number(r["seconds_to_first_step"]));
}

// Profiles further steps as `train --profile` does. Returns the table of the slowest operations.
std::string profile_steps(const BenchOptions& options, const train::Config& config,
                          comm::Communicator& communicator, train::Step& step,
                          const data::Batch& batch, float learning_rate) {
  const std::filesystem::path folder = config.run.run_dir().empty() ? "." : config.run.run_dir();
  comm::together(communicator, [&] {
    if (communicator.rank() == 0) create_folders(folder);
  });
  const train::StepWindow window = train::parse_step_window(options.profile);
  train::Profiler profiler({window, measure_peaks}, config, communicator, step, nullptr, folder);
  const auto note = [&](const std::optional<train::StepResult>& result) {
    if (result && result->timeline) profiler.done(result->step, *result->timeline);
  };
  for (int64_t n = 1; n <= window.last; ++n) {
    if (profiler.opens_before(n)) profiler.open();
    if (profiler.is_open()) profiler.fetched(n, Clock::now());
    note(step.run(batch, n, learning_rate));
  }
  note(step.finish());
  const train::Profiler::Outcome outcome = profiler.close();
  comm::together(communicator, [&] {
    if (!outcome.problem.empty()) throw Error(outcome.problem);
  });
  return outcome.table;
}

int bench(const BenchOptions& options, comm::Communicator& communicator) {
  Target target;
  comm::together(communicator, [&] {
    target = load_target(options, communicator.size());
    train::plan_batch(target.config, communicator.size());
  });
  train::require_same_properties(communicator, train::program_properties(target.config.run));
  const auto device = train::create_device(target.config, communicator);
  const auto backend = train::create_backend(target.config, *device);
  model::Graph graph;
  comm::together(communicator,
                 [&] { graph = train::build_network(target.config, target.samples); });
  train::choose_parallel(target.config, graph, *backend, communicator);
  const train::Config& config = target.config;
  train::Step step(config, graph, *backend, communicator);
  step.initialize();
  const SyntheticBatch data(target.samples, step.plan(), step.stage().grid, *device);

  const auto learning_rate = static_cast<float>(config.run.schedule().learning_rate());
  const MeasuredSteps measured = measure(options, communicator, step, data.batch, learning_rate);
  const int threads = config.run.train().threads() > 0 ? config.run.train().threads()
                                                       : train::default_threads(communicator);
  const int64_t resident = train::peak_resident_bytes();  // before measure_peaks() allocates more
  const train::Peaks peaks = measure_peaks(config, communicator, *backend);
  const bool on_gpu = device->kind() == DeviceKind::kCuda;
  const double flops = step.flops(data.batch);

  Json own = to_json(measured);
  if (const train::Grid& grid = step.stage().grid; grid.has_pipeline()) {
    own["stage"] = grid.stage;
    own["idle_ms"] = 1e3 * measured.idle;
  }
  own["flops_per_step"] = flops;
  own["floor_ms"] = 1e3 * flops / peaks.flops;
  const double traffic = static_cast<double>(step.plan().passes) * step.program().traffic_bytes();
  own["memory_floor_ms"] = 1e3 * traffic / peaks.bytes;
  own["peak_memory_bytes"] = on_gpu ? static_cast<int64_t>(step.memory_bytes().total()) : resident;
  if (on_gpu) own["device"] = device->description();
  Json result = merge(all_gather(communicator, train::json_text(own)));
  std::string profile;
  if (!options.profile.empty()) {
    profile = profile_steps(options, config, communicator, step, data.batch, learning_rate);
  }
  if (communicator.rank() != 0) return 0;

  const double step_ms = train::to_number(result["step_ms"]);
  result["model"] = train::model_name(config.run);
  result["ranks"] = communicator.size();
  result["hosts"] = communicator.placement().hosts;
  result["threads"] = threads;
  result["precision"] = Precision_Name(config.run.train().precision());
  result["parameters"] = step.parameters().count();
  result["batch_per_rank"] = step.plan().capacity;
  result["steps"] = measured.steps;
  result["samples_per_second"] = 1e3 * static_cast<double>(step.plan().global) / step_ms;
  if (const int64_t tokens = target.samples.tokens_per_sample(); tokens > 0) {
    result["tokens_per_second"] =
        train::to_number(result["samples_per_second"]) * static_cast<double>(tokens);
  }
  result["model_flops_utilization"] =
      1e3 * train::to_number(result["flops_per_step"]) / peaks.flops / step_ms;
  result["exposed_comm_fraction"] = train::to_number(result["exposed_comm_ms"]) / step_ms;
  result["peak_flops"] = peaks.flops;
  if (options.json) {
    fmt::print("{}\n", train::json_text(result));
  } else {
    print_table(result);
    if (!profile.empty()) fmt::print("\n{}", profile);
  }
  return 0;
}

}  // namespace

void add_bench(ArgumentParser app, Command& chosen) {
  auto options = std::make_shared<BenchOptions>();
  ArgumentParser command = app.add_command(
      "bench",
      "Time the training step and compute its lower bounds\nTrains on random data in memory.");
  options->add_to(command);
  command
      .add_option("--steps", options->steps,
                  "Number of steps to time (default: as many as fit into --seconds)")
      .positive();
  command.add_option("--seconds", options->seconds, "How long to time steps, in seconds")
      .positive()
      .show_default();
  command
      .add_option("--profile", options->profile,
                  "After timing, profile steps N to M: writes trace.json and profile.txt to "
                  "--run-dir, or to the current folder")
      .metavar("steps=N..M")
      .check(step_window_problem);
  command.add_flag("--json", options->json, "Print the results as one JSON object");
  command.epilog(R"(Examples:
  trireme bench lenet --batch 64
  mpirun -np 2 trireme bench resnet20 --json
)");
  command.on_chosen([options, &chosen] {
    chosen.run = [options](comm::Communicator& communicator) {
      return bench(*options, communicator);
    };
  });
}

}  // namespace trireme::cli
