#include "launch/doctor_gpu.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "comm/control.h"
#include "core/error.h"
#include "trainer/config/device.h"

namespace trireme::cli {
namespace {

using Json = nlohmann::json;

// Returns the index of each rank's GPU among those visible to it, or -1 if it sees none.
std::vector<int> assign(const std::vector<Json>& ranks) {
  std::vector<std::vector<std::string>> visible;
  for (const Json& rank : ranks) visible.push_back(rank["cuda"]["ids"]);
  return train::assign_devices(visible);
}

Json describe_gpu(int index) {
  try {
    return {{"gpu", create_cuda_device(index)->description()}};
  } catch (const Error& error) {
    return {{"gpu", "a GPU that cannot be used"}, {"gpu_problem", error.what()}};
  }
}

std::string text(const Json& value) { return value.get<std::string>(); }

bool has_gpu(const Json& rank) { return rank.contains("gpu"); }

void check_libraries(const std::string& host, const Json& cuda, bool several,
                     std::vector<Finding>& findings) {
  for (const Json& library : cuda["libraries"]) {
    if (text(library["problem"]).empty()) continue;
    const std::string name = text(library["name"]);
    const std::string what = fmt::format("{}: {}", host, text(library["problem"]));
    if (name == "NCCL") {
      if (!several) continue;
      findings.push_back({what + "; gradients are exchanged through host memory instead",
                          "pip install nvidia-nccl-cu13, or add its folder to LD_LIBRARY_PATH",
                          false});
    } else if (name == "NVML") {
      findings.push_back({what + "; GPU utilization is not recorded",
                          "it comes with the driver (package nvidia-utils or libnvidia-ml1)",
                          false});
    } else {
      findings.push_back(
          {what + "; GPUs cannot be used without it",
           "install cuDNN 9 and cuBLAS for CUDA 13 (pip install nvidia-cudnn-cu13 nvidia-cublas), "
           "or add their folder to LD_LIBRARY_PATH; --device cpu works"});
    }
  }
}

void check_sharing(const std::string& host, const std::vector<Json>& ranks,
                   std::vector<Finding>& findings) {
  std::set<std::string> used;
  for (const Json& rank : ranks) used.insert(text(rank["gpu_id"]));
  if (used.size() == ranks.size()) return;
  findings.push_back(
      {fmt::format("{}: {} ranks see {} GPU{}; they train on the CPU, or share GPUs with --device "
                   "cuda",
                   host, ranks.size(), used.size(), used.size() == 1 ? "" : "s"),
       "start one rank per GPU", false});
}

void check_gpus_open(const std::string& host, const std::vector<Json>& ranks,
                     std::vector<Finding>& findings) {
  for (const Json& rank : ranks) {
    if (!rank.contains("gpu_problem")) continue;
    findings.push_back(
        {fmt::format("{}: rank {} cannot use GPU {}: {}", host, rank["rank"].get<int>(),
                     text(rank["gpu_id"]), text(rank["gpu_problem"])),
         "check the GPU with nvidia-smi; --device cpu works"});
  }
}

// Reports GPUs and CUDA libraries that differ between ranks.
void check_same_gpus(const Hosts& hosts, std::vector<Finding>& findings) {
  std::set<std::string> models;
  std::map<std::string, std::set<std::string>> versions;  // of each library
  for (const auto& [name, ranks] : hosts) {
    for (const Json& rank : ranks) {
      if (!has_gpu(rank)) continue;
      models.insert(text(rank["gpu"]));
      for (const Json& library : rank["cuda"]["libraries"]) {
        versions[text(library["name"])].insert(text(library["version"]));
      }
    }
  }
  if (models.size() > 1) {
    findings.push_back(
        {fmt::format("the GPUs differ ({}): all wait for the slowest", fmt::join(models, "; ")),
         "use identical GPUs", false});
  }
  for (const auto& [library, found] : versions) {
    if (found.size() < 2) continue;
    findings.push_back({fmt::format("the ranks load different versions of {}: {}", library,
                                    fmt::join(found, ", ")),
                        "install the same version on every host", library == "NCCL"});
  }
}

// Reports hosts with a rank that sees no GPU, grouped by the reason. `elsewhere` is true if other
// ranks see one.
void check_missing_gpus(const std::map<std::string, std::vector<std::string>>& hosts,
                        bool elsewhere, std::vector<Finding>& findings) {
  for (const auto& [problem, names] : hosts) {
    const bool hidden = problem.find("CUDA_VISIBLE_DEVICES") != std::string::npos;
    findings.push_back(
        {fmt::format("{}: no GPU: {}; training runs on the CPU{}", fmt::join(names, ", "), problem,
                     elsewhere ? " on all hosts" : ""),
         hidden ? "unset CUDA_VISIBLE_DEVICES, or set it to existing GPUs"
                : "if there is a GPU, install or load the NVIDIA driver, 580 or newer for CUDA 13 "
                  "(in a container: docker run --gpus all)",
         false});
  }
}

}  // namespace

Json describe_cuda() {
  const CudaSupport cuda = query_cuda();
  Json libraries = Json::array();
  for (const LibraryStatus& library : cuda_libraries()) {
    libraries.push_back({{"name", library.name},
                         {"version", library.version},
                         {"path", library.path},
                         {"problem", library.problem}});
  }
  return {{"built", cuda.built},
          {"ids", cuda.ids},
          {"problem", cuda.problem},
          {"versions", cuda.versions},
          {"libraries", libraries}};
}

void describe_gpus(Hosts& hosts, comm::Communicator& communicator) {
  Json own = Json::object();
  for (const auto& [name, ranks] : hosts) {
    const std::vector<int> chosen = assign(ranks);
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (ranks[i]["rank"] != communicator.rank() || chosen[i] < 0) continue;
      own = describe_gpu(chosen[i]);
      own["gpu_id"] = ranks[i]["cuda"]["ids"][static_cast<size_t>(chosen[i])];
    }
  }
  const auto texts = all_gather(communicator, own.dump());
  for (auto& [name, ranks] : hosts) {
    for (Json& rank : ranks) rank.update(Json::parse(texts[rank["rank"].get<size_t>()]));
  }
}

void print_cuda(const Json& cuda) {
  if (!cuda["built"]) {
    fmt::print("CUDA       {}\n", text(cuda["problem"]));
    return;
  }
  fmt::print("CUDA       {}\n", text(cuda["versions"]));
  for (const Json& library : cuda["libraries"]) {
    const bool there = text(library["problem"]).empty();
    fmt::print("           {:<8} {}\n", text(library["name"]),
               there ? text(library["version"]) + "  " + text(library["path"]) : "missing");
  }
}

void check_gpus(const Hosts& hosts, std::vector<Finding>& findings) {
  size_t all = 0, with = 0;
  for (const auto& [name, ranks] : hosts) {
    all += ranks.size();
    with += std::count_if(ranks.begin(), ranks.end(), has_gpu);
  }
  std::map<std::string, std::vector<std::string>> absent;  // hosts by reason
  for (const auto& [name, ranks] : hosts) {
    const auto without = std::find_if_not(ranks.begin(), ranks.end(), has_gpu);
    if (without == ranks.end()) {
      check_libraries(name, ranks.front()["cuda"], all > 1, findings);
      check_sharing(name, ranks, findings);
      check_gpus_open(name, ranks, findings);
    } else if ((*without)["cuda"]["built"]) {
      absent[text((*without)["cuda"]["problem"])].push_back(name);
    }
  }
  check_missing_gpus(absent, with > 0, findings);
  check_same_gpus(hosts, findings);
}

}  // namespace trireme::cli
