// The properties that every op declares in its struct, for code that handles any op:
//
//   struct DenseForward {
//     enum Arg { kX, kWeight, kBias, kY, kArgs };
//     static const OpInfo kInfo;
//     void check(const Checker& c) const;  // throws Error if shapes or dtypes do not fit
//     double flops(Specs specs) const;     // only if the op is bound by computation
//   };
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <utility>

#include "core/tensor.h"

namespace trireme::ops {

using Specs = std::span<const TensorSpec>;  // specs of an op's args, in the order of its Arg

enum class Use : uint8_t { kIn, kOut, kInOut };
inline constexpr bool kOptional = true;

struct ArgInfo {
  const char* name;  // for messages, e.g. "running mean"
  Use use;
  bool optional = false;  // may be absent
};

struct OpInfo {
  const char* name;                     // e.g. "conv2d_backward_data"
  std::initializer_list<ArgInfo> args;  // in the order of Arg
  bool variadic = false;                // the last arg may occur any number of times
  // {output, input}: pairs of args that may share memory.
  std::initializer_list<std::pair<int, int>> aliases = {};

  const ArgInfo& arg(size_t i) const { return args.begin()[i < args.size() ? i : args.size() - 1]; }
};

// Checks the specs for which a plan is requested. Each check throws Error with the op, the arg, its
// spec and the required one if it fails.
class Checker {
 public:
  Checker(const OpInfo& info, Specs specs) : info_(info), specs_(specs) {}

  const Shape& shape(int arg) const { return specs_[static_cast<size_t>(arg)].shape; }
  DType dtype(int arg) const { return specs_[static_cast<size_t>(arg)].dtype; }
  bool present(int arg) const;
  std::string name(int arg) const;  // "bias"; for a variadic arg, "input 2"

  void count(size_t wanted) const;  // checks the number of args
  void none_missing() const;        // checks that all required args are present
  void rank(int arg, int wanted) const;
  int64_t channels(int arg) const;  // returns C of [N, C, ...]
  // Checks the shape of an arg. An optional arg may be absent.
  void is(int arg, const Shape& wanted) const;
  // Checks the shape of an optional arg that this op requires.
  void needs(int arg, const Shape& wanted) const;
  // Like is(), for integers.
  void is_i32(int arg, const Shape& wanted) const;
  // Checks that the arg has the size of one T in bytes.
  template <class T>
  void is_struct(int arg) const {
    is(arg, {int64_t{sizeof(T)}});
  }
  void at_least(int64_t min, std::span<const int64_t> values, const char* what) const;
  // Throws Error with the name of the op and the reason.
  [[noreturn]] void refuse(const std::string& why) const;

 private:
  const OpInfo& info_;
  Specs specs_;
};

}  // namespace trireme::ops
