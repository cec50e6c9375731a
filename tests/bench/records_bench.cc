// Measures the cost of opening many samples: a shard of 1.3 million tiny samples, created in the
// temporary folder (2.7 GB, removed afterwards), and 100,000 files in folders.
//   records_bench [FLAGS OF GOOGLE BENCHMARK]
// Counters: records; memory, by which the process grows in MB; and own, the same without pages that
// the kernel can drop, such as those of mapped files.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>

#include "data/data.pb.h"
#include "data/formats/formats.h"
#include "tests/data/tars.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr int kSamples = 1300000;  // an image and a label each
constexpr int kFiles = 100000;
constexpr int kClasses = 1000;

// A temporary folder, removed by the destructor.
class Folder {
 public:
  Folder() : path_(fs::temp_directory_path() / fmt::format("records-bench-{}", getpid())) {
    fs::create_directories(path_);
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

void write_shard(const fs::path& path) {
  std::ofstream file(path, std::ios::binary);
  for (int i = 0; i < kSamples; ++i) {
    file << testing::sample_members(fmt::format("{:08}", i), "image", std::to_string(i % kClasses));
  }
  file << testing::tar_end();
}

void write_folders(const fs::path& path) {
  for (int i = 0; i < kClasses; ++i) {
    const fs::path folder = path / "train" / fmt::format("n{:08}", i);
    fs::create_directories(folder);
    for (int k = 0; k < kFiles / kClasses; ++k) {
      std::ofstream(folder / fmt::format("n{:08}_{}.JPEG", i, k)) << "image";
    }
  }
}

// Memory of the process in MB: resident, and without pages shared with files.
struct Memory {
  double all = 0;
  double own = 0;
};

Memory memory() {
  std::ifstream file("/proc/self/statm");
  double size = 0;
  double resident = 0;
  double shared = 0;
  file >> size >> resident >> shared;
  const double page = static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
  return {resident * page, (resident - shared) * page};
}

using Open = std::function<std::unique_ptr<data::Records>()>;

void measure(benchmark::State& state, const std::function<void()>& before, const Open& open) {
  const Memory begin = memory();
  std::unique_ptr<data::Records> records;
  for (auto _ : state) {
    state.PauseTiming();
    records.reset();
    before();
    state.ResumeTiming();
    records = open();
  }
  const Memory end = memory();
  state.counters["records"] = static_cast<double>(records->size());
  state.counters["memory"] = end.all - begin.all;
  state.counters["own"] = end.own - begin.own;
}

void report(const char* name, const std::function<void()>& before, const Open& open) {
  benchmark::RegisterBenchmark(name, [=](benchmark::State& state) { measure(state, before, open); })
      ->Unit(benchmark::kMillisecond)
      ->UseRealTime();
}

int run(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  const Folder folder;
  fmt::print("writing {} samples in {}\n", kSamples, folder.path().string());
  write_shard(folder.path() / "t.tar");
  write_folders(folder.path());
  DataConfig tar;
  tar.set_root(folder.path().string());
  tar.mutable_webdataset()->add_train("t.tar");
  DataConfig files;
  files.set_root(folder.path().string());
  files.mutable_image_folder();
  const fs::path index = folder.path() / "t.tar.index";
  const auto nothing = [] {};
  const Open open_tar = [&] { return data::open_webdataset(tar, data::Part::kTraining, {}); };
  const Open open_files = [&] { return data::open_image_folder(files, data::Part::kTraining, {}); };
  report("list class folders", nothing, open_files);
  report(
      "index a shard", [&] { fs::remove(index); }, open_tar);
  report("open an indexed shard", nothing, open_tar);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace trireme

int main(int argc, char** argv) { return trireme::run(argc, argv); }
