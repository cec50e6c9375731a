// A file descriptor that is closed on destruction.
#pragma once

#include <unistd.h>

#include <utility>

namespace trireme {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() {
    if (is_open()) ::close(number_);
  }
  Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
  Descriptor& operator=(Descriptor&&) = delete;

  bool is_open() const { return number_ >= 0; }
  int number() const { return number_; }
  // Returns the descriptor without closing it; the caller takes ownership.
  int release() { return std::exchange(number_, -1); }

 private:
  int number_;
};

}  // namespace trireme
