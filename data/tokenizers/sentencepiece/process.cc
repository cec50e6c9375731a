#include "data/tokenizers/sentencepiece/process.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "core/installation.h"
#include "data/tokenizers/sentencepiece/channel.h"

extern "C" char** environ;

namespace trireme::data::sentencepiece {
namespace {

constexpr int kSocket = 3;  // the number of the socket in the process

constexpr const char* kFailed = "the SentencePiece library failed; is it a model of SentencePiece?";

[[noreturn]] void throw_ended() {
  throw Error(fmt::format("{} (trireme-sentencepiece ended)", kFailed));
}

}  // namespace

Process::Sockets Process::open_sockets() {
  std::array<int, 2> sockets{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets.data()) != 0) {
    throw Error(fmt::format("a socket cannot be created: {}", std::strerror(errno)));
  }
  return {Descriptor(sockets[0]), Descriptor(sockets[1])};
}

Process::Process(const std::vector<std::string>& arguments) : Process(open_sockets(), arguments) {}

Process::Process(Sockets sockets, const std::vector<std::string>& arguments)
    : socket_(std::move(sockets.own)) {
  const std::string program = helper_program("sentencepiece").string();
  std::vector<std::string> words{program, std::to_string(kSocket)};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, sockets.other.number(), kSocket);
  const int error =
      posix_spawn(&process_, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return;
  process_ = 0;
  throw Error(fmt::format("{}, which runs the SentencePiece library, cannot be started: {}",
                          program, std::strerror(error)));
}

Process::~Process() {
  ::close(socket_.release());
  while (::waitpid(process_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void Process::send(std::string_view block) {
  if (Channel(socket_.number()).send(block)) return;
  check_status();  // the program may have told why it ended
  throw_ended();
}

std::string Process::receive() {
  std::string block;
  if (!Channel(socket_.number()).receive(block)) throw_ended();
  return block;
}

void Process::check_status() {
  const std::string status = receive();
  if (status.empty()) return;
  // "Internal: ./src/trainer_interface.cc(660) [CONDITION] TEXT"; TEXT may be empty
  const size_t end = status.rfind("] ");
  const std::string text = end == std::string::npos ? status : status.substr(end + 2);
  throw Error(text.empty() ? kFailed : "the SentencePiece library reports: " + text);
}

}  // namespace trireme::data::sentencepiece
