// Messages between Trireme and trireme-sentencepiece, which runs the SentencePiece library in a
// process of its own: the distributions build this library with a Protocol Buffers of its own,
// whose functions have the names of Trireme's. A crash of the library because of a damaged model
// also only ends that process.
//
// Both send blocks of bytes with their size before them, over one socket:
//   trireme-sentencepiece SOCKET read:         Trireme sends the model, the program its status, the
//       special tokens (Special as int32) and, for each piece, its kind and its text. Then Trireme
//       sends texts, and the program, for each, a status and its tokens (int32).
//   trireme-sentencepiece SOCKET train VOCAB TYPE: Trireme sends lines and an empty block; the
//       program sends a status and the model.
// A status is empty, or a message about an error, after which nothing follows.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::data::sentencepiece {

enum Special { kUnknown, kBegin, kEnd, kPad, kSpecials };
enum class PieceKind : char { kText, kByte, kUnknown, kOther };

class Channel {
 public:
  explicit Channel(int socket) : socket_(socket) {}

  // Return false if the other process has ended.
  bool send(std::string_view block) {
    const uint64_t size = block.size();
    return send_all(reinterpret_cast<const char*>(&size), sizeof size) &&
           send_all(block.data(), block.size());
  }
  bool receive(std::string& block) {
    uint64_t size = 0;
    if (!receive_all(reinterpret_cast<char*>(&size), sizeof size)) return false;
    block.resize(size);
    return receive_all(block.data(), size);
  }

 private:
  bool send_all(const char* data, size_t size) {
    while (size > 0) {
      const ssize_t sent = ::send(socket_, data, size, MSG_NOSIGNAL);
      if (sent < 0 && errno == EINTR) continue;
      if (sent <= 0) return false;
      data += sent;
      size -= static_cast<size_t>(sent);
    }
    return true;
  }
  bool receive_all(char* data, size_t size) {
    while (size > 0) {
      const ssize_t received = ::recv(socket_, data, size, 0);
      if (received < 0 && errno == EINTR) continue;
      if (received <= 0) return false;
      data += received;
      size -= static_cast<size_t>(received);
    }
    return true;
  }

  int socket_;
};

}  // namespace trireme::data::sentencepiece
