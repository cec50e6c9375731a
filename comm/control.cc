#include "comm/control.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "core/memory_limit.h"

namespace trireme::comm {
namespace {

// Runs each task immediately, on the calling thread.
class CallerStream final : public Stream {
 public:
  DeviceKind device() const override { return DeviceKind::kCpu; }
  void record(Event&) override {}
  void wait(Event&) override {}
  void run(Task task) override { task(); }
  void synchronize() override {}
};

struct Failure {
  std::string message;
  ExitCode code = ExitCode::kFailure;
};

Failure describe(const std::exception_ptr& failure) {
  try {
    std::rethrow_exception(failure);
  } catch (const Error& error) {
    return {error.what(), error.code()};
  } catch (const std::bad_alloc&) {
    return {kOutOfMemory};
  } catch (const std::exception& error) {
    return {error.what()};
  } catch (...) {
    return {"unknown failure"};
  }
}

}  // namespace

std::vector<std::string> all_gather(Communicator& communicator, const std::string& text) {
  CallerStream stream;
  const auto ranks = static_cast<size_t>(communicator.size());
  const auto own = static_cast<int64_t>(text.size());
  std::vector<int64_t> lengths(ranks);
  communicator.all_gather(&own, lengths.data(), 1, DType::kI64, stream);
  const int64_t longest = *std::ranges::max_element(lengths);
  const auto width = static_cast<size_t>(longest);
  std::string padded = text;
  padded.resize(width);
  std::string all(width * ranks, '\0');
  if (longest > 0) {
    communicator.all_gather(padded.data(), all.data(), longest, DType::kU8, stream);
  }
  std::vector<std::string> texts;
  for (size_t i = 0; i < ranks; ++i) {
    texts.push_back(all.substr(i * width, static_cast<size_t>(lengths[i])));
  }
  return texts;
}

void sum(Communicator& communicator, std::span<double> values) {
  CallerStream stream;
  communicator.all_reduce_sum(values.data(), std::ssize(values), DType::kF64, stream);
}

int64_t max(Communicator& communicator, int64_t value) {
  CallerStream stream;
  std::vector<int64_t> values(static_cast<size_t>(communicator.size()));
  communicator.all_gather(&value, values.data(), 1, DType::kI64, stream);
  return std::ranges::max(values);
}

std::string broadcast(Communicator& communicator, std::string text, int root) {
  CallerStream stream;
  auto length = static_cast<int64_t>(text.size());
  communicator.broadcast(&length, 1, DType::kI64, root, stream);
  text.resize(length);
  if (length > 0) communicator.broadcast(text.data(), length, DType::kU8, root, stream);
  return text;
}

void agree(Communicator& communicator, std::exception_ptr failure) {
  CallerStream stream;
  int64_t failures = failure ? 1 : 0;
  communicator.all_reduce_sum(&failures, 1, DType::kI64, stream);
  if (failures == 0) return;
  const Failure own = failure ? describe(failure) : Failure{};
  // The exit code as one character, followed by the message; empty from ranks that did not fail.
  std::string report;
  if (failure) report = static_cast<char>(own.code) + own.message;
  const auto reports = all_gather(communicator, report);
  const auto first = std::ranges::find_if(reports, [](const auto& each) { return !each.empty(); });
  const int rank =
      communicator.placement().group.world_rank(static_cast<int>(first - reports.begin()));
  const auto code = static_cast<ExitCode>(static_cast<unsigned char>(first->front()));
  std::string message = first->substr(1);
  // An error on all ranks, such as an invalid configuration, is not the fault of a single rank.
  if (failures < communicator.size()) {
    message = fmt::format("rank {}: {}", communicator.ledger().with_role(rank), message);
  }
  throw AgreedError(message, code, rank);
}

}  // namespace trireme::comm
