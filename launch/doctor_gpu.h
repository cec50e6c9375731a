// The part of `trireme doctor` that checks GPUs and the libraries that they need.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace trireme::cli {

struct Finding {
  std::string description;
  std::string fix;
  bool is_problem = true;  // false for a note, e.g. about something slow
};

// The descriptions of the ranks of each host, in the order of the ranks.
using Hosts = std::map<std::string, std::vector<nlohmann::json>>;

// Describes the CUDA support of this process, with the keys built, ids, problem, versions and
// libraries.
nlohmann::json describe_cuda();

// Adds to each rank of `hosts` the GPU that it would train on: gpu_id, gpu (its description) and,
// if it cannot be opened, gpu_problem. Adds nothing to ranks that see no GPU. A collective: each
// rank opens its own GPU.
void describe_gpus(Hosts& hosts, comm::Communicator& communicator);

void print_cuda(const nlohmann::json& cuda);
// Appends what is wrong with the GPUs of `hosts` to `findings`.
void check_gpus(const Hosts& hosts, std::vector<Finding>& findings);

}  // namespace trireme::cli
