#include "comm/nccl/nccl_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <cstdlib>

namespace trireme::comm::nccl {
namespace {

template <class Function>
void find(const cuda::Library& file, const char* name, Function*& function) {
  function = file.function<Function>(name);
}

}  // namespace

Library::Library() : file("NCCL", {"libnccl.so.2"}) {
  // Two communicators may have work on two streams at once. Without this setting, GPUs could start
  // with different ones and deadlock.
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", /*overwrite=*/0);
  find(file, "ncclGetVersion", get_version);
  find(file, "ncclGetUniqueId", get_unique_id);
  find(file, "ncclCommInitRankConfig", comm_init);
  find(file, "ncclCommSplit", comm_split);
  find(file, "ncclCommGetAsyncError", comm_get_async_error);
  find(file, "ncclCommFinalize", comm_finalize);
  find(file, "ncclCommDestroy", comm_destroy);
  find(file, "ncclCommAbort", comm_abort);
  find(file, "ncclCommRegister", comm_register);
  find(file, "ncclCommDeregister", comm_deregister);
  find(file, "ncclMemAlloc", mem_alloc);
  find(file, "ncclMemFree", mem_free);
  find(file, "ncclAllReduce", all_reduce);
  find(file, "ncclReduceScatter", reduce_scatter);
  find(file, "ncclAllGather", all_gather);
  find(file, "ncclBroadcast", broadcast);
  find(file, "ncclSend", send);
  find(file, "ncclRecv", recv);
  find(file, "ncclGetErrorString", get_error_string);
  find(file, "ncclGetLastError", get_last_error);
  // Threads of NCCL may outlive the last call to it, so it must stay loaded.
  dlopen(file.path().c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
}

std::string Library::version() const {
  int code = 0;
  get_version(&code);
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

std::string Library::explain(ncclResult_t result) const {
  const std::string last = get_last_error(nullptr);
  const std::string meaning = get_error_string(result);
  return last.empty() ? meaning : fmt::format("{} ({})", meaning, last);
}

}  // namespace trireme::comm::nccl
