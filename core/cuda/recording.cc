#include "core/cuda/recording.h"

#include "core/cuda/cuda.h"

namespace trireme::cuda {
namespace {

thread_local CudaRecording* recording_now = nullptr;

}  // namespace

CudaRecording* CudaRecording::current() { return recording_now; }

CudaRecording::CudaRecording(CudaStream& stream, const std::function<void()>& encode, int device,
                             std::shared_ptr<HostTasks> tasks)
    : tasks_(std::move(tasks)), replayed_(device, EventKind::kOrder, tasks_) {
  const GraphHandle graph = capture(stream.handle(), encode);
  cudaGraphExec_t executable = nullptr;
  // Preserve the priorities of streams, so that communication has priority within a graph, too.
  TRIREME_CUDA(
      cudaGraphInstantiate(&executable, graph.get(), cudaGraphInstantiateFlagUseNodePriority));
  executable_.reset(executable);
  TRIREME_CUDA(cudaGraphUpload(executable, stream.handle()));
}

CudaRecording::GraphHandle CudaRecording::capture(cudaStream_t stream,
                                                  const std::function<void()>& encode) {
  if (recording_now) throw Error("recordings cannot be nested");
  // Thread-local mode: other threads may still allocate and synchronize.
  TRIREME_CUDA(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  cudaGraph_t graph = nullptr;
  recording_now = this;
  try {
    encode();
  } catch (...) {
    recording_now = nullptr;
    cudaStreamEndCapture(stream, &graph);  // its error is a consequence of the exception
    cudaGetLastError();
    const GraphHandle unfinished(graph);
    throw;
  }
  recording_now = nullptr;
  TRIREME_CUDA(cudaStreamEndCapture(stream, &graph));
  return GraphHandle(graph);
}

CudaRecording::~CudaRecording() {
  if (!slots_.empty() && replayed_.recorded()) cudaEventSynchronize(replayed_.handle());
}

void CudaRecording::replay(Stream& stream) {
  const cudaStream_t target = handle(stream);
  // Tasks keep the ticket of the first replay: after a failure, all events from that replay on
  // report it.
  if (!slots_.empty() && !replayed_.recorded()) {
    const uint64_t ticket = tasks_->draw_ticket();
    for (HostTasks::Slot& slot : slots_) slot.ticket = ticket;
  }
  TRIREME_CUDA(cudaGraphLaunch(executable_.get(), target));
  if (!slots_.empty()) replayed_.record(target, /*captured=*/false);
}

}  // namespace trireme::cuda
