#include "trainer/checkpoint/checkpoint_writer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <string_view>
#include <thread>

#include "core/error.h"
#include "core/fault_point.h"
#include "small_model.h"
#include "temporary_folder.h"

namespace {

std::atomic<bool> hanging{false};

}  // namespace

// Replaces the one of core/fault_point.cc.
bool trireme::fault_point(const char* name, int64_t, std::span<std::byte>) {
  if (std::string_view(name) == "write") hanging.wait(true);
  return false;
}

namespace trireme::train {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class WriterTest : public ::testing::Test {
 protected:
  CheckpointWriter writer(double timeout = 60) {
    return CheckpointWriter(Checkpoints(checkpoints(), 3), model_.arrays(), timeout);
  }
  static CheckpointState at(int64_t step, int64_t best_step = 0) {
    CheckpointState state;
    state.step = step;
    if (best_step > 0) state.best = {"accuracy", 0.5, best_step};
    return state;
  }
  fs::path checkpoints() const { return folder_.path() / "checkpoints"; }

  // Writing blocks from now on, as on a hanging disk.
  static void hang() { hanging = true; }
  static void end_the_hang() {
    hanging = false;
    hanging.notify_all();
  }
  static SaveOutcome end_of(CheckpointWriter& saves) {
    SaveOutcome outcome = saves.wait();
    while (saves.writing()) outcome = saves.wait();
    return outcome;
  }

  TemporaryFolder folder_;
  SmallModel model_;
};

TEST_F(WriterTest, WritesTheStateOfTheTimeOfTheCall) {
  CheckpointWriter saves = writer();
  EXPECT_FALSE(saves.writing());
  EXPECT_FALSE(saves.poll());
  for (int64_t step : {1, 2, 3}) {
    model_.fill(step);
    const SmallModel before = [&] {
      SmallModel copy;
      copy.fill(step);
      return copy;
    }();
    saves.start(at(step, /*best_step=*/step < 2 ? 0 : 2));
    EXPECT_EQ(saves.writing(), step);
    model_.fill(100);  // training continues
    const SaveOutcome outcome = saves.wait();
    EXPECT_EQ(outcome.error, "");
    EXPECT_EQ(outcome.state.step, step);
    EXPECT_EQ(outcome.state.is_best(), step == 2);
    EXPECT_GE(outcome.seconds, outcome.stall_seconds);
    EXPECT_FALSE(saves.writing());

    model_.clear();
    const FoundCheckpoint found = open_checkpoint(outcome.path);
    load_model(found, model_.arrays());
    load_optimizer(found, model_.arrays());
    EXPECT_EQ(model_.values, before.values);
    EXPECT_EQ(model_.velocity, before.velocity);
    EXPECT_EQ(model_.running, before.running);
  }
  EXPECT_EQ(slurp(checkpoints() / "latest"), "step-00000003\n");
  EXPECT_EQ(slurp(checkpoints() / "best"), "step-00000002\n");
}

TEST_F(WriterTest, ReportsEachSaveOnce) {
  CheckpointWriter saves = writer();
  saves.start(at(1));
  std::optional<SaveOutcome> outcome;
  while (!(outcome = saves.poll())) std::this_thread::yield();
  EXPECT_TRUE(fs::exists(outcome->path / "manifest.json"));
  EXPECT_FALSE(saves.poll());
}

TEST_F(WriterTest, ReportsAFailureAndCanSaveAgain) {
  CheckpointWriter saves = writer();
  spill(checkpoints(), "a file where the folder should be");
  saves.start(at(1));
  const SaveOutcome failed = saves.wait();
  EXPECT_NE(failed.error.find(checkpoints().string()), std::string::npos) << failed.error;
  EXPECT_TRUE(failed.path.empty());
  fs::remove(checkpoints());
  saves.start(at(2));
  EXPECT_EQ(saves.wait().error, "");
}

TEST_F(WriterTest, ReportsAHangingDiskOnceAndRecovers) {
  hang();
  CheckpointWriter saves = writer(/*timeout=*/0.1);
  saves.start(at(1));
  const SaveOutcome outcome = saves.wait();
  EXPECT_NE(outcome.error.find("still being written after 0.1 s"), std::string::npos)
      << outcome.error;
  EXPECT_EQ(saves.writing(), 1);
  EXPECT_FALSE(saves.poll());  // has been reported
  end_the_hang();
  const SaveOutcome late = end_of(saves);
  EXPECT_EQ(late.error, "");
  saves.start(at(2));
  EXPECT_EQ(end_of(saves).error, "");
}

TEST_F(WriterTest, DestructorReturnsThoughTheDiskHangs) {
  hang();
  const auto start = Clock::now();
  {
    CheckpointWriter saves = writer();
    saves.start(at(1));
  }
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(10));
  end_the_hang();  // for the thread, which still runs
  std::this_thread::sleep_for(std::chrono::milliseconds(200));
}

TEST_F(WriterTest, DestructorCompletesTheSaveInProgress) {
  { writer().start(at(5)); }
  EXPECT_EQ(open_checkpoint(checkpoints() / "step-00000005").state.step, 5);
}

// An independent reader in Python understands the format.
TEST_F(WriterTest, PythonReadsTheFiles) {
  if (std::system("python3 -c pass") != 0) GTEST_SKIP() << "there is no python3";
  model_.fill(7);
  CheckpointWriter saves = writer();
  saves.start(at(7));
  const fs::path path = saves.wait().path;
  spill(folder_.path() / "read.py", R"(
import json, struct, sys
def read(path):
    data = open(path, "rb").read()
    length, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__")
    values = data[8 + length:]
    end, tensors = 0, {}
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        count = 1
        for extent in entry["shape"]: count *= extent
        begin, stop = entry["data_offsets"]
        assert entry["dtype"] == "F32" and begin == end and stop - begin == 4 * count, (name, entry)
        tensors[name] = list(struct.unpack("<%df" % count, values[begin:stop]))
        end = stop
    assert end == len(values), (end, len(values))
    try:
        from safetensors import safe_open
    except ImportError:
        return tensors
    with safe_open(path, framework="np") as file:
        assert {name: file.get_tensor(name).ravel().tolist() for name in file.keys()} == tensors
    return tensors
model = read(sys.argv[1] + "/model.safetensors")
assert model == {"fc.weight": [7016.0 + i for i in range(6)], "fc.bias": [7032.0, 7033.0],
                 "bn.running_mean": [7.5] * 3}, model
optimizer = read(sys.argv[1] + "/optimizer.safetensors")
assert optimizer == {"velocity.fc.weight": [6984.0 - i for i in range(6)],
                     "velocity.fc.bias": [6968.0, 6967.0]}, optimizer
)");
  const std::string script = (folder_.path() / "read.py").string();
  EXPECT_EQ(std::system(("python3 " + script + " " + path.string()).c_str()), 0);
}

}  // namespace
}  // namespace trireme::train
