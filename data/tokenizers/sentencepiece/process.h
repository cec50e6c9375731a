// A process that runs the SentencePiece library, see channel.h.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/descriptor.h"

namespace trireme::data::sentencepiece {

class Process {
 public:
  // Starts trireme-sentencepiece, which is next to the program, with these arguments after the
  // socket. Throws Error if it cannot be started.
  explicit Process(const std::vector<std::string>& arguments);
  // Ends the process.
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Throw Error if the process has ended.
  void send(std::string_view block);
  std::string receive();
  // Receives a status. Throws Error with the message if it is not empty.
  void check_status();

 private:
  struct Sockets {
    Descriptor own;
    Descriptor other;  // of the process
  };
  static Sockets open_sockets();
  Process(Sockets sockets, const std::vector<std::string>& arguments);

  Descriptor socket_;
  pid_t process_ = 0;
};

}  // namespace trireme::data::sentencepiece
