// Creates the device of this rank and its operations backend.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "comm/device_communicator.h"
#include "ops/backend.h"
#include "trainer/config/config.h"

namespace trireme::train {

constexpr int kMaxThreads = 4096;  // of a rank's computation

// The cores that a rank may use.
struct RankCores {
  std::string allowed;                   // '1' for each core in its affinity mask, otherwise '0'
  std::map<std::string, double> quotas;  // CPU quota in cores of each of its control groups
};
// Returns the share of the cores of a host that one of its ranks has. A core is divided equally
// among the ranks that may run on it, and so is the CPU quota of a control group among the ranks in
// it; the smallest share counts.
double share_of_cores(const std::vector<RankCores>& ranks, size_t rank);

// Returns OMP_NUM_THREADS if set, otherwise this rank's share of the cores. All ranks must call it.
// Here and below, a process that plans a run counts as `sharing` ranks, which will share its cores.
// Throws ConfigError if OMP_NUM_THREADS is greater than kMaxThreads.
int default_threads(comm::Communicator& communicator, int sharing = 1);

// Returns the number of cores that this rank's computation leaves to other threads, from 1 to 64. A
// CPU rank computes on its configured threads; a GPU rank needs two cores to launch and
// communicate. All ranks must call it.
int spare_cores(const Config& config, comm::Communicator& communicator, const Device& device,
                int sharing = 1);

// Returns a GPU on every rank if train.device allows it and there is one for each, otherwise the
// CPU. Ranks share GPUs only if train.device is cuda. Throws ConfigError if the configured device
// or precision is not available. All ranks must call it.
std::unique_ptr<Device> create_device(const Config& config, comm::Communicator& communicator,
                                      int sharing = 1);
std::unique_ptr<ops::Backend> create_backend(const Config& config, Device& device);

// Returns the dtype that the network computes in. FP32 and TF32 are f32.
DType compute_dtype(const Config& config);

// Returns the transport that sums gradients.
comm::Transport transport_of(const Config& config);

// Assigns a GPU to each rank of a host. `visible` lists, for each rank in order, the identities of
// the devices that it may use. Returns an index into the list of each rank, -1 if the list is
// empty. Each rank gets its visible device with the fewest ranks so far.
std::vector<int> assign_devices(const std::vector<std::vector<std::string>>& visible);

}  // namespace trireme::train
