#include "comm/watchdog/message.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <type_traits>

namespace trireme::comm {
namespace {

constexpr uint32_t kMessageMagic = 0x4d475254;  // "TRGM"
constexpr uint32_t kVersion = 4;
constexpr int64_t kMaxRanks = 1 << 16;  // on one host
constexpr int64_t kMaxRank = 1 << 24;
// Limit of times and counts: far above all real values, far below any overflow.
constexpr int64_t kMax = int64_t{1} << 60;

constexpr size_t kOperationBytes = 32;
constexpr size_t kBucketNameBytes = 128;
constexpr size_t kGroupNameBytes = 64;
constexpr size_t kDetailBytes = 192;
constexpr size_t kFailureBytes = 768;
constexpr size_t kDiagnosisBytes = 2000;

// The functions that list the fields serve both directions: `Archive` is a Writer or a Reader.
class Writer {
 public:
  template <class T>
  void number(const T& value, int64_t /*min*/, int64_t /*max*/) {
    auto bits = static_cast<uint64_t>(value);
    for (size_t i = 0; i < sizeof(T); ++i, bits >>= 8) {
      bytes_.push_back(static_cast<std::byte>(bits & 0xff));
    }
  }
  void text(const std::string& value, size_t max_length) {
    const auto length = static_cast<uint32_t>(std::min(value.size(), max_length));
    number(length, 0, kMax);
    const auto* begin = reinterpret_cast<const std::byte*>(value.data());
    bytes_.insert(bytes_.end(), begin, begin + length);
  }
  template <class Element, class Each>
  void list(const std::vector<Element>& values, int64_t /*max_size*/, Each each) {
    number(static_cast<uint32_t>(values.size()), 0, kMax);
    for (const Element& value : values) each(value);
  }
  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : rest_(bytes) {}

  // A number out of bounds or beyond the end of the bytes makes the reader fail: complete() returns
  // false, and nothing that follows is read.
  template <class T>
  void number(T& value, int64_t min, int64_t max) {
    if (sizeof(T) > rest_.size()) return fail();
    uint64_t bits = 0;
    for (size_t i = 0; i < sizeof(T); ++i) bits |= static_cast<uint64_t>(rest_[i]) << (8 * i);
    rest_ = rest_.subspan(sizeof(T));
    int64_t read = static_cast<int64_t>(bits);
    if constexpr (std::is_signed_v<T>) read = static_cast<std::make_signed_t<T>>(bits);
    if (read < min || read > max) return fail();
    value = static_cast<T>(read);
  }
  void text(std::string& value, size_t max_length) {
    uint32_t length = 0;
    number(length, 0, static_cast<int64_t>(max_length));
    if (length > rest_.size()) return fail();
    value.assign(reinterpret_cast<const char*>(rest_.data()), length);
    rest_ = rest_.subspan(length);
  }
  template <class Element, class Each>
  void list(std::vector<Element>& values, int64_t max_size, Each each) {
    uint32_t size = 0;
    number(size, 0, max_size);
    for (uint32_t i = 0; i < size && good_; ++i) each(values.emplace_back());
  }
  bool complete() const { return good_ && rest_.empty(); }
  bool good() const { return good_; }

 private:
  void fail() {
    good_ = false;
    rest_ = {};
  }

  std::span<const std::byte> rest_;
  bool good_ = true;
};

template <class Archive, class Call>
void call_fields(Archive& archive, Call& call) {
  archive.number(call.group, 1, kMax);
  archive.text(call.group_name, kGroupNameBytes);
  archive.number(call.sequence, 0, kMax);
  archive.number(call.transfers, 0, kMax);
  archive.number(call.began, 0, kMax);
  archive.number(call.step, 0, kMax);
  archive.number(call.bytes, 0, kMax);
  archive.number(call.dtype, 0, static_cast<int64_t>(DType::kU8));
  archive.number(call.bucket, -1, kMaxRank);
  archive.text(call.bucket_name, kBucketNameBytes);
  archive.text(call.operation, kOperationBytes);
}

template <class Archive, class View>
void rank_fields(Archive& archive, View& view) {
  archive.number(view.rank, 0, kMaxRank);
  for (auto* time : {&view.seen, &view.heartbeat, &view.since, &view.failed, &view.ended}) {
    archive.number(*time, 0, kMax);
  }
  archive.number(view.phase, 0, static_cast<int64_t>(Phase::kEnd));
  for (auto* count :
       {&view.step, &view.process_steps, &view.step_ns, &view.waiting_ns, &view.idle_ns}) {
    archive.number(*count, 0, kMax);
  }
  archive.number(view.awaits_transfer, 0, 1);
  archive.text(view.detail, kDetailBytes);
  archive.list(view.calls, LedgerRecord::kMaxGroups,
               [&](auto& call) { call_fields(archive, call); });
  archive.number(view.exit_code, 0, 255);
  archive.number(view.caused_by_peer, 0, 1);
  archive.text(view.failure, kFailureBytes);
  archive.number(view.state, 0, 127);
}

template <class Archive, class Its>
void decision_fields(Archive& archive, Its& decision) {
  archive.number(decision.when, 0, kMax);
  archive.number(decision.rank, 0, kMaxRank);
  archive.number(decision.diagnosis.fault, 0, static_cast<int64_t>(Fault::kUnreachable));
  archive.number(decision.diagnosis.rank_at_fault, -1, kMaxRank);
  archive.number(decision.diagnosis.exit_code, 1, 255);
  archive.text(decision.diagnosis.text, kDiagnosisBytes);
}

}  // namespace

std::vector<std::byte> encode(const Message& message) {
  Writer writer;
  writer.number(kMessageMagic, 0, kMax);
  writer.number(kVersion, 0, kMax);
  writer.number(message.now, 0, kMax);
  writer.list(message.ranks, kMaxRanks, [&](const RankView& view) { rank_fields(writer, view); });
  writer.number(static_cast<uint8_t>(message.decision.has_value()), 0, 1);
  if (message.decision) decision_fields(writer, *message.decision);
  return writer.take();
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  uint32_t magic = 0;
  uint32_t version = 0;
  reader.number(magic, kMessageMagic, kMessageMagic);
  reader.number(version, kVersion, kVersion);
  Message message;
  reader.number(message.now, 0, kMax);
  reader.list(message.ranks, kMaxRanks, [&](RankView& view) { rank_fields(reader, view); });
  uint8_t decided = 0;
  reader.number(decided, 0, 1);
  if (decided != 0) decision_fields(reader, message.decision.emplace());
  if (!reader.complete()) return {};
  return message;
}

void convert_times(Message& message, int64_t now) {
  const int64_t ahead = now - message.now;
  const auto shift = [&](int64_t& time) {
    if (time != 0) time = std::max<int64_t>(1, time + ahead);  // 0 means that there is no time
  };
  for (RankView& view : message.ranks) {
    for (int64_t* time : {&view.seen, &view.heartbeat, &view.since, &view.failed, &view.ended}) {
      shift(*time);
    }
    for (CallView& call : view.calls) shift(call.began);
  }
  if (message.decision) shift(message.decision->when);
  message.now = now;
}

}  // namespace trireme::comm
