// What `trireme doctor` tells of GPUs and of the libraries that they need.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trireme::cli {

struct Finding {
  std::string what;
  std::string mend;
  bool stops = true;  // else only slow
};

// What each rank of each host told of itself, in the order of the ranks.
using Hosts = std::map<std::string, std::vector<nlohmann::json>>;

// CUDA as this process finds it: built, ids, problem, versions, libraries.
nlohmann::json describe_cuda();

// Adds to each rank of `hosts` the GPU that it would train on: gpu_id, gpu (its description) and,
// if it cannot be opened, gpu_problem; none where it sees no GPU. Each rank opens its own. All
// ranks call it together.
void describe_gpus(Hosts& hosts, comm::Communicator& communicator);

void print_cuda(const nlohmann::json& cuda);
void check_gpus(const Hosts& hosts, std::vector<Finding>& findings);

}  // namespace trireme::cli
