// The functions of NCCL that Trireme uses, loaded at run time.
#pragma once

#include <nccl.h>

#include <string>

#include "core/cuda/library.h"

namespace trireme::comm::nccl {

struct Library {
  // Throws DeviceError if NCCL is not installed or lacks a function.
  Library();

  std::string version() const;  // "2.28.9"
  // Returns a description of the result, with NCCL's last error message.
  std::string explain(ncclResult_t result) const;

  cuda::Library file;
  decltype(ncclGetVersion)* get_version;
  decltype(ncclGetUniqueId)* get_unique_id;
  decltype(ncclCommInitRankConfig)* comm_init;
  decltype(ncclCommSplit)* comm_split;
  decltype(ncclCommGetAsyncError)* comm_get_async_error;
  decltype(ncclCommFinalize)* comm_finalize;
  decltype(ncclCommDestroy)* comm_destroy;
  decltype(ncclCommAbort)* comm_abort;
  decltype(ncclCommRegister)* comm_register;
  decltype(ncclCommDeregister)* comm_deregister;
  decltype(ncclMemAlloc)* mem_alloc;
  decltype(ncclMemFree)* mem_free;
  decltype(ncclAllReduce)* all_reduce;
  decltype(ncclReduceScatter)* reduce_scatter;
  decltype(ncclAllGather)* all_gather;
  decltype(ncclBroadcast)* broadcast;
  decltype(ncclSend)* send;
  decltype(ncclRecv)* recv;
  decltype(ncclGetErrorString)* get_error_string;
  decltype(ncclGetLastError)* get_last_error;
};

}  // namespace trireme::comm::nccl
