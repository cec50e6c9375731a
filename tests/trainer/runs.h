// Complete runs in this process, on every rank and every kind of device, and access to their files.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "comm/control.h"
#include "devices.h"
#include "temporary_folder.h"
#include "tests/comm/ranks.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/run/train.h"

namespace trireme::train {

namespace fs = std::filesystem;

// Has every operation whose result could depend on how the batch is split: statistics over the
// batch and random numbers by row.
inline const char* const kSyncNorm = R"(
model { network {
  layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { batch_norm { sync: true } }
  layer { relu {} }
  layer { max_pool { kernel: 2 } }
  layer { flatten {} }
  layer { dense { units: 24 } }
  layer { relu {} }
  layer { dropout { rate: 0.3 } }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy { label_smoothing: 0.1 } }
} }
optimizer { sgd { momentum: 0.9 } weight_decay: 1e-3 }
schedule { learning_rate: 0.02 cosine {} warmup { steps: 5 } }
)";

inline const char* const kPlain = R"(
model { network {
  layer { conv2d { channels: 8 kernel: 3 padding: 1 } }
  layer { group_norm { num_groups: 2 } }
  layer { tanh {} }
  layer { average_pool { kernel: 2 } }
  layer { flatten {} }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
optimizer { adamw {} weight_decay: 0.01 }
schedule { learning_rate: 0.003 multi_step { epochs: [5] } }
)";

// Batch norm over each rank's own samples.
inline const char* const kOwnNorm = R"(
model { network {
  layer { conv2d { channels: 8 kernel: 3 padding: 1 bias: false } }
  layer { batch_norm {} }
  layer { relu {} }
  layer { flatten {} }
  layer { dense { units: 10 } }
  layer { softmax_cross_entropy {} }
} }
optimizer { adam {} }
schedule { learning_rate: 0.003 one_cycle {} }
)";

// The batch is divisible by neither 3 nor 4; an epoch has 4 steps, the last with a smaller batch.
inline const char* const kCommon = R"(
data { synthetic { shape: [3, 8, 8] count: 190 eval_count: 55 noise: 0.3 } }
batch { global: 50 }
train { epochs: 7 }
checkpoint { every_epochs: 0 keep: 100 keep_best: false }
checks { parameter_checksum_every_steps: 1 }
)";

// Parameterized by the available kinds of devices.
class RunTest : public ::testing::TestWithParam<std::string> {
 protected:
  RunTest() : world_(test::join()), local_(comm::create_local_communicator()) {
    if (world_->rank() == 0) folder_ = std::make_unique<TemporaryFolder>();
    root_ = broadcast(*world_, folder_ ? folder_->path().string() : "", 0);
  }

  void TearDown() override { wait_for_all(); }  // before rank 0 removes the folder
  void wait_for_all() const { world_->barrier(*cpu_->create_stream(StreamKind::kCompute)); }

  Config config(const std::string& network, const std::string& name,
                std::vector<std::string> assignments = {}) const {
    assignments.push_back("run_dir=" + folder(name).string());
    assignments.insert(assignments.begin(), "train.device=" + GetParam());
    return parse_config(network + kCommon, "test", assignments);
  }

  TrainResult run(const std::string& network, const std::string& name,
                  const std::vector<std::string>& assignments = {},
                  const std::string& resume = "auto") {
    return train(config(network, name, assignments), *world_,
                 {.resume = resume, .quiet = true, .wait_for_saves = true});
  }

  // Runs on rank 0 alone.
  void run_alone(const std::string& network, const std::string& name,
                 const std::vector<std::string>& assignments = {}) {
    if (world_->rank() == 0) train(config(network, name, assignments), *local_, {.quiet = true});
    wait_for_all();
  }

  fs::path folder(const std::string& name) const { return root_ / name; }
  fs::path checkpoint(const std::string& name, int64_t step) const {
    std::string digits = std::to_string(step);
    digits.insert(0, 8 - digits.size(), '0');
    return folder(name) / "checkpoints" / ("step-" + digits);
  }

  FoundCheckpoint newest(const std::string& name) const {
    return find_for_inference(folder(name), warn_on_stderr);
  }

  // Returns the contents of a file as rank 0 sees it; ranks may not share a disk.
  std::string file(const fs::path& path) const {
    return broadcast(*world_, world_->rank() == 0 ? slurp(path) : "", 0);
  }

  std::vector<nlohmann::json> events(const std::string& name, const std::string& kind) const {
    std::vector<nlohmann::json> found;
    std::istringstream text(file(folder(name) / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      auto event = nlohmann::json::parse(line);
      if (event["event"] == kind) found.push_back(std::move(event));
    }
    return found;
  }

  // Returns the losses and checksums of all steps. Equal if two runs are bitwise identical.
  std::vector<std::string> trace(const std::string& name) const {
    std::vector<std::string> lines;
    for (const auto& step : events(name, "step")) {
      lines.push_back(step["step"].dump() + " " + step["epoch"].dump() + " " +
                      step["train_loss"].dump() + " " + step["learning_rate"].dump() + " " +
                      step["parameter_checksum"].get<std::string>());
    }
    return lines;
  }

  std::vector<double> losses(const std::string& name) const {
    std::vector<double> found;
    for (const auto& step : events(name, "step")) found.push_back(step["train_loss"]);
    return found;
  }

  void expect_same_losses(const std::string& a, const std::string& b, size_t count,
                          double tolerance = 1e-5) {
    const std::vector<double> first = losses(a);
    const std::vector<double> second = losses(b);
    ASSERT_GE(first.size(), count);
    ASSERT_GE(second.size(), count);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_NEAR(second[i], first[i], tolerance * std::abs(first[i])) << "step " << i + 1;
    }
    EXPECT_GT(std::abs(first[0] - first[count - 1]), 0.01);  // it did learn something
  }

  std::string model(const std::string& name, int64_t step) const {
    const std::string bytes = file(checkpoint(name, step) / "model.safetensors");
    EXPECT_FALSE(bytes.empty()) << name << " " << step;
    return bytes;
  }

  // Expects the same AgreedError on every rank.
  template <class F>
  void expect_agreed_error(F&& f, ExitCode code, const std::string& part) {
    try {
      f();
      ADD_FAILURE() << "no error";
    } catch (const comm::AgreedError& error) {
      EXPECT_EQ(error.code(), code);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
  }

  std::unique_ptr<Device> cpu_ = create_cpu_device(1);
  std::unique_ptr<comm::Communicator> world_;
  std::unique_ptr<comm::Communicator> local_;
  std::unique_ptr<TemporaryFolder> folder_;
  fs::path root_;
};

}  // namespace trireme::train
