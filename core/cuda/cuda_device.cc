#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/cuda/cuda.h"
#include "core/cuda/nvml.h"
#include "core/cuda/recording.h"
#include "core/cuda/stream.h"

namespace trireme {
namespace cuda {
namespace {

std::string version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string pci_bus_id(int index) {
  char id[32];
  TRIREME_CUDA(cudaDeviceGetPCIBusId(id, sizeof(id), index));
  return id;
}

// Returns why CUDA finds no device. `driver` is the CUDA version that the driver supports, 0 if
// there is no driver.
std::string no_device_text(cudaError_t result, int driver, int runtime) {
  if (driver == 0) return "no NVIDIA driver is installed (libcuda.so.1 was not found)";
  if (result == cudaErrorInsufficientDriver) {
    return fmt::format(
        "the NVIDIA driver is too old: it supports CUDA {}, but this program needs CUDA {}",
        version_text(driver), version_text(runtime));
  }
  if (result != cudaSuccess && result != cudaErrorNoDevice) {
    return fmt::format("{}: {}", cudaGetErrorName(result), cudaGetErrorString(result));
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible) return fmt::format("CUDA_VISIBLE_DEVICES=\"{}\" hides all GPUs", visible);
  return "the NVIDIA driver finds no GPU";
}

Properties query_properties(int index) {
  cudaDeviceProp properties;
  TRIREME_CUDA(cudaGetDeviceProperties(&properties, index));
  return {.index = index,
          .name = properties.name,
          .major = properties.major,
          .minor = properties.minor,
          .multiprocessors = properties.multiProcessorCount,
          .shared_bytes_per_block = properties.sharedMemPerBlockOptin,
          .l2_bytes = static_cast<size_t>(properties.l2CacheSize),
          .memory_bytes = properties.totalGlobalMem};
}

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(int index) : properties_(query_properties(index)) { use_device(index); }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string description() const override {
    return fmt::format("{}, {} SMs, {:.0f} GiB, compute capability {}.{}", properties_.name,
                       properties_.multiprocessors,
                       static_cast<double>(properties_.memory_bytes) / (1 << 30), properties_.major,
                       properties_.minor);
  }
  Buffer allocate(size_t bytes) override;
  Buffer allocate_host(size_t bytes) override;
  std::unique_ptr<Stream> create_stream(StreamKind kind) override {
    return std::make_unique<CudaStream>(properties_.index, kind, tasks_);
  }
  std::unique_ptr<Event> create_event(EventKind kind) override {
    return std::make_unique<CudaEvent>(properties_.index, kind, tasks_);
  }
  double seconds_between(Event& from, Event& to) override;
  void copy(void* to, const void* from, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    TRIREME_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, handle(stream)));
  }
  void fill_zero(void* to, size_t bytes, Stream& stream) override {
    if (bytes == 0) return;
    TRIREME_CUDA(cudaMemsetAsync(to, 0, bytes, handle(stream)));
  }
  std::unique_ptr<Recording> record(Stream& stream, const std::function<void()>& encode) override {
    return std::make_unique<CudaRecording>(static_cast<CudaStream&>(stream), encode,
                                           properties_.index, tasks_);
  }
  std::optional<DeviceLoad> load() override {
    std::lock_guard lock(nvml_mutex_);
    if (!nvml_) nvml_.emplace(pci_bus_id(properties_.index));
    return nvml_->load();
  }
  const Properties& properties() const { return properties_; }
  void fail(std::exception_ptr failure) { tasks_->fail(std::move(failure)); }

 private:
  const Properties properties_;
  std::shared_ptr<HostTasks> tasks_ = std::make_shared<HostTasks>();
  std::mutex nvml_mutex_;
  std::optional<Nvml> nvml_;
};

Buffer CudaDevice::allocate(size_t bytes) {
  use_device(properties_.index);
  void* data = nullptr;
  const cudaError_t result = cudaMalloc(&data, std::max<size_t>(bytes, 1));
  if (result == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    size_t free = 0, total = 0;
    TRIREME_CUDA(cudaMemGetInfo(&free, &total));
    throw DeviceError("cudaMalloc",
                      fmt::format("no memory for {} bytes: {} of {} are free", bytes, free, total));
  }
  check(result, "cudaMalloc");
  // cudaFree waits for the device. Its errors are ignored: failed work is reported when a stream is
  // synchronized.
  return Buffer(data, bytes, [index = properties_.index](void* memory) {
    if (try_device(index)) cudaFree(memory);
  });
}

Buffer CudaDevice::allocate_host(size_t bytes) {
  use_device(properties_.index);
  void* data = nullptr;
  check(cudaHostAlloc(&data, std::max<size_t>(bytes, 1), cudaHostAllocDefault),
        fmt::format("cudaHostAlloc of {} bytes", bytes).c_str());
  return Buffer(data, bytes, [index = properties_.index](void* memory) {
    if (try_device(index)) cudaFreeHost(memory);
  });
}

double CudaDevice::seconds_between(Event& from, Event& to) {
  use_device(properties_.index);
  float milliseconds = 0;
  TRIREME_CUDA(cudaEventElapsedTime(&milliseconds, static_cast<CudaEvent&>(from).handle(),
                                    static_cast<CudaEvent&>(to).handle()));
  return milliseconds / 1e3;
}

CudaDevice& cuda_device(Device& device) {
  if (device.kind() != DeviceKind::kCuda) throw Error("the device is not a CUDA device");
  return static_cast<CudaDevice&>(device);
}

}  // namespace

void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // clears the error, so that no later call reports it again
  throw DeviceError(call,
                    fmt::format("{}: {}", cudaGetErrorName(result), cudaGetErrorString(result)));
}

cudaStream_t handle(Stream& stream) {
  if (stream.device() != DeviceKind::kCuda) {
    throw Error("the stream does not belong to a CUDA device");
  }
  return static_cast<CudaStream&>(stream).handle();
}

const Properties& properties(Device& device) { return cuda_device(device).properties(); }

void fail(Device& device, std::exception_ptr failure) {
  cuda_device(device).fail(std::move(failure));
}

}  // namespace cuda

CudaSupport query_cuda() {
  CudaSupport support{.built = true};
  int runtime = 0, driver = 0;
  cuda::check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
  cuda::check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
  support.versions = "runtime " + cuda::version_text(runtime);
  if (driver > 0) support.versions += ", driver " + cuda::version_text(driver);

  int count = 0;
  const cudaError_t result = cudaGetDeviceCount(&count);
  cudaGetLastError();
  if (result != cudaSuccess || count == 0) {
    support.problem = cuda::no_device_text(result, driver, runtime);
    return support;
  }
  support.devices = count;
  for (int i = 0; i < count; ++i) support.ids.push_back(cuda::pci_bus_id(i));
  return support;
}

std::unique_ptr<Device> create_cuda_device(int index) {
  const CudaSupport support = query_cuda();
  if (support.devices == 0) throw DeviceError("create_cuda_device", support.problem);
  if (index < 0 || index >= support.devices) {
    throw DeviceError("create_cuda_device",
                      fmt::format("device index {} is out of range; this process may use {} GPU(s)",
                                  index, support.devices));
  }
  return std::make_unique<cuda::CudaDevice>(index);
}

}  // namespace trireme
