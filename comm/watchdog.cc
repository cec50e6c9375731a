#include "comm/watchdog.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <stop_token>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/control.h"
#include "comm/mpi/peer_watch.h"
#include "comm/watchdog/crash.h"
#include "comm/watchdog/diagnose.h"
#include "comm/watchdog/end_launcher.h"
#include "comm/watchdog/kill_timer.h"
#include "comm/watchdog/message.h"
#include "comm/watchdog/process.h"
#include "comm/watchdog/report.h"
#include "comm/watchdog/shared_state.h"
#include "comm/watchdog/side_channel.h"
#include "comm/watchdog/warnings.h"
#include "core/fault_point.h"

namespace trireme::comm {
namespace {

constexpr int64_t kMillisecond = 1'000'000;
constexpr int64_t kMinTick = 10 * kMillisecond;
constexpr int64_t kMaxTick = 250 * kMillisecond;
constexpr int64_t kFailureTick = 20 * kMillisecond;  // after a failure, until there is a diagnosis
// Time for a diagnosis to reach the other hosts, on top of a tick in which each rank adopts it.
constexpr int64_t kPropagationTime = 100 * kMillisecond;
constexpr double kKillDelay = 5;  // seconds after which an abort that hangs is killed
// If a heartbeat is late by more ticks than this, the state of the process is read from /proc.
constexpr int64_t kLateTicks = 2;
// If this thread has not run for more ticks than this, the process was suspended.
constexpr int64_t kAsleepTicks = 4;

// "HOST PID NAMESPACE NAME"
std::string to_text(const Placement& place) {
  const mpi::Peer self = mpi::this_peer(place.rank);
  return fmt::format("{} {} {} {}", place.host, self.pid, self.pid_namespace, place.host_name);
}

Member member_from(const std::string& text) {
  Member member;
  std::istringstream words(text);
  words >> member.host >> member.pid >> member.pid_namespace >> member.host_name;
  return member;
}

// Prints buffered output before the diagnosis, unless a stuck thread holds the lock of stdout.
void flush_stdout() {
  if (ftrylockfile(stdout) != 0) return;
  std::fflush(stdout);
  funlockfile(stdout);
}

}  // namespace

struct Watchdog::State {
  explicit State(Communicator& its_world)
      : world(its_world), ledger(world.ledger()), place(world.placement()), shared_state(world) {
    for (const std::string& text : all_gather(world, to_text(place))) {
      snapshot.members.push_back(member_from(text));
    }
    ledger.move_to(&shared_state.own_record());
    ledger.record().rank = place.rank;
    ledger.record().pid = getpid();
    snapshot.own_rank = place.rank;
    snapshot.awake_since = monotonic_ns();
    snapshot.hosts.resize(place.hosts);
    for (int i = 0; i < place.ranks; ++i) {
      snapshot.ranks.emplace_back().rank = i;
      if (member(i).host == place.host) local.push_back(i);
    }
    watch_processes();
    if (place.hosts > 1) channel = std::make_unique<SideChannel>(world);
    handle_crashes(ledger, describe_rank(snapshot, place.rank), place.hosts > 1 ? 0.6 : 0);
    wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    start_thread();
  }

  ~State() {
    stop_thread();
    if (wake >= 0) close(wake);
    clear_crash_ledger();
  }

  void watch_processes() {
    std::vector<mpi::Peer> peers;
    for (const int rank : local) {
      peers.push_back({rank, member(rank).pid, member(rank).pid_namespace});
    }
    processes = std::make_unique<mpi::PeerWatch>(peers);
  }

  // Blocks all signals but crashes in the thread, so that other threads handle them.
  void start_thread() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    for (const int crash : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT}) sigdelset(&all, crash);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread = std::jthread([this](const std::stop_token& stop) { watch(stop); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread.native_handle(), "watchdog");
  }

  void stop_thread() {
    thread.request_stop();
    wake_up();
    if (thread.joinable()) thread.join();
  }

  void wake_up() const {
    const uint64_t one = 1;
    if (wake >= 0) static_cast<void>(!write(wake, &one, sizeof one));
  }

  const Member& member(int rank) const { return snapshot.members[rank]; }
  RankView& view(int rank) { return snapshot.ranks[rank]; }

  // --- The thread.

  void watch(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      observe();
      receive_messages();
      decide();
      if (decision && snapshot.now >= decision->when + snapshot.tick + kPropagationTime) {
        end(*decision);
      }
      send_state();
      if (!decision) warn();
      publish_paces();
      wait();
    }
    observe();
    send_state();  // the other hosts must learn that the ranks of this one have left
  }

  void observe() {
    const int64_t now = monotonic_ns();
    snapshot.options = ledger.options();
    snapshot.roles = ledger.roles();
    const double tick = snapshot.options.timeout > 0 ? snapshot.options.timeout / 10 : 1;
    snapshot.tick =
        static_cast<int64_t>(std::clamp(1e9 * tick, double{kMinTick}, double{kMaxTick}));
    if (snapshot.now != 0 && now - snapshot.now > kAsleepTicks * snapshot.tick) {
      snapshot.awake_since = now;
    }
    snapshot.now = now;
    ledger.record().heartbeat = now;
    for (size_t i = 0; i < local.size(); ++i) observe_rank(local[i], static_cast<int>(i));
  }

  void observe_rank(int rank, int local_rank) {
    const int64_t ended = view(rank).ended;
    RankView& its = view(rank);
    its = read_record(shared_state.record(local_rank), snapshot.now);
    its.rank = rank;
    its.ended = ended;
    const bool late = snapshot.age(its.heartbeat) > kLateTicks * snapshot.tick;
    if (!late || processes->descriptor(rank) < 0) return;
    if (const auto stat = read_stat(member(rank).pid)) its.state = stat->state;
  }

  void receive_messages() {
    if (!channel) return;
    channel->receive([this](int sender, std::span<const std::byte> bytes) {
      if (auto message = decode(bytes)) handle(sender, std::move(*message));
    });
    for (const SideChannel::Peer& peer : channel->peers()) {
      // A connection that the network dropped counts as neither open nor closed: if no other one is
      // open, the lack of messages makes the host unreachable.
      const auto link = peer.end == SideChannel::End::kNone     ? SharedState::Link::kOpen
                        : peer.end == SideChannel::End::kClosed ? SharedState::Link::kClosed
                                                                : SharedState::Link::kNone;
      shared_state.set_link(peer.host, link, heard[peer.host]);
    }
    for (int host = 0; host < place.hosts; ++host) {
      HostView known = shared_state.host(host);
      HostView& before = snapshot.hosts[host];
      if (known.closed != 0) known.closed = before.closed != 0 ? before.closed : snapshot.now;
      before = known;
    }
  }

  void handle(int sender, Message message) {
    convert_times(message, snapshot.now);
    const int host = member(sender).host;
    heard[host] = snapshot.now;
    for (RankView& its : message.ranks) {
      if (its.rank >= place.ranks || member(its.rank).host != host) continue;
      // Until the rank's own watchdog runs, a message from its host counts as the heartbeat.
      if (its.heartbeat == 0) its.heartbeat = its.seen;
      view(its.rank) = std::move(its);
    }
    if (message.decision && message.decision->diagnosis.rank_at_fault < place.ranks) {
      adopt(*message.decision);
    }
  }

  void decide() {
    if (const auto proposed = shared_state.proposed()) adopt(*proposed);
    if (decision) return;
    const auto diagnosis = diagnose(snapshot);
    if (diagnosis) adopt({snapshot.now, place.rank, *diagnosis});
  }

  // Keeps the diagnosis of the lowest rank if there are several, so that all ranks report the same.
  void adopt(const Decision& other) {
    if (decision && decision->rank <= other.rank) return;
    decision = other;
    shared_state.propose(other);
    ledger.set_diagnosis(other.diagnosis.text);
  }

  void send_state() {
    if (!channel) return;
    Message message;
    message.now = snapshot.now;
    for (const int rank : local) message.ranks.push_back(view(rank));
    message.decision = decision;
    channel->send(encode(message));
  }

  void warn() {
    for (const std::string& warning : warnings.update(snapshot)) {
      report("warning: " + warning, snapshot.options.log);
    }
  }

  void publish_paces() const {
    if (place.rank != 0 || place.ranks == 1) return;
    std::vector<RankPace> paces;
    for (const RankView& its : snapshot.ranks) {
      paces.push_back({its.process_steps, its.step_ns, its.waiting_ns, its.idle_ns});
    }
    ledger.set_paces(std::move(paces));
  }

  bool failure_pending() {
    return decision || std::ranges::any_of(snapshot.ranks, [](const RankView& each) {
             return each.phase != Phase::kEnd && (each.ended != 0 || each.failed != 0);
           });
  }

  // Waits until the next tick, a call of wake_up(), or the end of a process of this host.
  void wait() {
    std::vector<pollfd> polled = {{wake, POLLIN, 0}};
    std::vector<int> ranks;
    for (const int rank : local) {
      const int descriptor = processes->descriptor(rank);
      if (descriptor < 0 || view(rank).ended != 0) continue;
      polled.push_back({descriptor, POLLIN, 0});
      ranks.push_back(rank);
    }
    const int64_t tick = failure_pending() ? std::min(kFailureTick, snapshot.tick) : snapshot.tick;
    poll(polled.data(), polled.size(), static_cast<int>(tick / kMillisecond));
    uint64_t calls = 0;
    if (polled[0].revents & POLLIN) static_cast<void>(!read(wake, &calls, sizeof calls));
    for (size_t i = 0; i < ranks.size(); ++i) {
      if (polled[i + 1].revents & POLLIN) view(ranks[i]).ended = monotonic_ns();
    }
  }

  // --- The end.

  [[noreturn]] void end(const Decision& final) {
    arm_kill_timer(kKillDelay);
    flush_stdout();
    report(final.diagnosis.text, snapshot.options.log);
    // Meanwhile the other ranks report it too.
    std::this_thread::sleep_for(std::chrono::nanoseconds(kPropagationTime));
    kill_rank_at_fault(final.diagnosis);
    const Fault fault = final.diagnosis.fault;
    if (fault == Fault::kHostLost || fault == Fault::kUnreachable) end_launcher_soon();
    fault_point("abort");
    world.abort(final.diagnosis.exit_code);
    std::_Exit(final.diagnosis.exit_code);
  }

  // Kills the rank at fault if it is suspended or stuck and so may be unable to exit.
  void kill_rank_at_fault(const Diagnosis& diagnosis) const {
    if (diagnosis.fault != Fault::kStopped && diagnosis.fault != Fault::kStuck) return;
    if (diagnosis.rank_at_fault == place.rank) return;
    const int descriptor = processes->descriptor(diagnosis.rank_at_fault);
    if (descriptor >= 0) syscall(SYS_pidfd_send_signal, descriptor, SIGKILL, nullptr, 0);
  }

  // Ends this process and aborts the run without the watchdog thread.
  [[noreturn]] void exit_alone(const std::string& message, int exit_code) {
    arm_kill_timer(kKillDelay);
    flush_stdout();
    report(place.ranks == 1 ? message : describe_rank(snapshot, place.rank) + ": " + message,
           ledger.options().log);
    world.abort(exit_code);
    std::_Exit(exit_code);
  }

  Communicator& world;
  Ledger& ledger;
  const Placement place;
  SharedState shared_state;
  std::vector<int> local;  // the ranks of this host, by local rank
  std::unique_ptr<mpi::PeerWatch> processes;
  std::unique_ptr<SideChannel> channel;  // null with one host
  int wake = -1;                         // an eventfd
  // Used by the thread only.
  RunSnapshot snapshot;
  std::vector<int64_t> heard = std::vector<int64_t>(static_cast<size_t>(place.hosts));
  Warnings warnings;
  std::optional<Decision> decision;
  std::jthread thread;  // declared last: it uses the members above
};

Watchdog::Watchdog(Communicator& world) : state_(std::make_unique<State>(world)) {}

Watchdog::~Watchdog() {
  if (!state_) return;
  state_->stop_thread();
  state_->ledger.move_to(nullptr);
  // Releasing the shared memory is collective, and the other ranks may not take part: leak it.
  if (state_->place.ranks > 1) static_cast<void>(state_.release());
}

void Watchdog::fail(const std::string& message, int exit_code, bool caused_by_peer) noexcept {
  State& s = *state_;
  s.ledger.fail(message, exit_code, caused_by_peer);
  if (s.place.ranks > 1 && s.thread.joinable() && s.thread.get_id() != std::this_thread::get_id()) {
    s.wake_up();
    // The thread should end the process before this returns.
    std::this_thread::sleep_for(std::chrono::seconds(10));
  }
  s.exit_alone(message, exit_code);
}

void Watchdog::leave() noexcept { state_->ledger.enter(Phase::kEnd); }

void Watchdog::finish() {
  leave();
  all_gather(state_->world, "");
  state_->stop_thread();
  state_->ledger.move_to(nullptr);
  state_.reset();
}

}  // namespace trireme::comm
