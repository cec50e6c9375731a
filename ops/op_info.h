// What every op declares in its struct, for code that handles ops without knowing which:
//
//   struct DenseForward {
//     enum Arg { kX, kWeight, kBias, kY, kArgs };
//     static const OpInfo kInfo;
//     void check(const Checker& c) const;  // refuses shapes and types that do not fit
//     double flops(Specs specs) const;     // where its time is not that of its bytes
//   };
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "core/tensor.h"

namespace trireme::ops {

using Specs = std::span<const TensorSpec>;  // of an op's args, in the order of its Arg

enum class Use : uint8_t { kIn, kOut, kInOut };
inline constexpr bool kOptional = true;

struct ArgInfo {
  const char* name;  // "running mean"
  Use use;
  bool optional = false;  // may be absent
};

struct OpInfo {
  const char* name;                     // "conv2d_backward_data"
  std::initializer_list<ArgInfo> args;  // in the order of Arg
  bool variadic = false;                // the last arg stands for any number of such
  // {output, input}: args that may be the same memory.
  std::initializer_list<std::pair<int, int>> aliases = {};

  const ArgInfo& arg(size_t i) const { return args.begin()[i < args.size() ? i : args.size() - 1]; }
};

// The specs that a plan was asked for, by the names of the args. What does not fit is refused: an
// Error that names the op, the arg, what it got and what would fit.
class Checker {
 public:
  Checker(const OpInfo& info, Specs specs) : info_(info), specs_(specs) {}

  const Shape& shape(int arg) const { return specs_[static_cast<size_t>(arg)].shape; }
  DType dtype(int arg) const { return specs_[static_cast<size_t>(arg)].dtype; }
  bool present(int arg) const;
  std::string name(int arg) const;  // "bias"; of what a variadic arg stands for, "input 2"

  void count(size_t wanted) const;
  void none_missing() const;  // refuses where an arg that is not optional is absent
  void rank(int arg, int wanted) const;
  int64_t channels(int arg) const;  // of [N, C, ...]
  // An optional arg may be absent.
  void is(int arg, const Shape& wanted) const;
  // An optional arg without which this op cannot do.
  void needs(int arg, const Shape& wanted) const;
  // The bytes of one T.
  template <class T>
  void is_struct(int arg) const {
    is(arg, {int64_t{sizeof(T)}});
  }
  void at_least(int64_t least, std::span<const int64_t> values, const char* what) const;
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const OpInfo& info_;
  Specs specs_;
};

}  // namespace trireme::ops
