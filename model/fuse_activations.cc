#include "model/fuse_activations.h"

#include <utility>
#include <vector>

namespace trireme::model {
namespace {

using Home = Value::Home;

bool is_fused_here(ops::Activation activation) {
  return activation != ops::Activation::kNone && !ops::derivative_uses_output(activation);
}

class ActivationFusion {
 public:
  ActivationFusion(std::vector<Instruction>& instructions, size_t& forward,
                   std::vector<Value>& values, ops::Backend& backend)
      : instructions_(instructions), forward_(forward), values_(values), backend_(backend) {}

  void run() {
    for (const Instruction& instruction : instructions_) count(instruction, 1);
    std::vector<bool> fused(instructions_.size());
    size_t passed = 0;
    for (size_t i = 0; i + 1 < instructions_.size(); ++i) {
      for (; passed <= i + 1; ++passed) count(instructions_[passed], -1);
      if (!fuse_forward(i) && !fuse_backward(i)) continue;
      fused[++i] = true;
    }
    erase(fused);
  }

 private:
  void erase(const std::vector<bool>& fused) {
    size_t kept = 0, forward = 0;
    for (size_t i = 0; i < instructions_.size(); ++i) {
      if (fused[i]) continue;
      if (i < forward_) ++forward;
      if (kept != i) instructions_[kept] = std::move(instructions_[i]);
      ++kept;
    }
    instructions_.resize(kept);
    forward_ = forward;
  }

  // Adds to uses_ those of an instruction.
  void count(const Instruction& instruction, int change) {
    for (const ValueId used : instruction.args) {
      if (used == kNoValue || value(used).home != Home::kActivations) continue;
      const auto storage = static_cast<size_t>(value(used).storage);
      if (storage >= uses_.size()) uses_.resize(storage + 1);
      uses_[storage] += change;
    }
  }

  const Value& value(ValueId id) const { return values_[id]; }
  ValueId arg(size_t i, int position) const { return instructions_[i].args[position]; }

  // Returns whether instruction i + 1 reads, as `read`, what instruction i writes as `written`, and
  // writes something of the same size as `result`, which the fused operation can write instead.
  bool follows(size_t i, int written, int read, int result) const {
    const Value &from = value(arg(i, written)), &to = value(arg(i + 1, result));
    return from.home == Home::kActivations && value(arg(i + 1, read)).storage == from.storage &&
           to.home == Home::kActivations && to.storage != from.storage &&
           to.spec.layout == Layout::row_major() && to.spec.dtype == from.spec.dtype &&
           to.spec.shape.elements() == from.spec.shape.elements();
  }

  // Returns whether an instruction after the next one uses the value's storage.
  bool is_used_later(ValueId id) const { return uses_[static_cast<size_t>(value(id).storage)] > 0; }

  // Returns a value with the memory of `id` and the spec of `rows`.
  ValueId as_rows(ValueId id, ValueId rows) {
    Value view = value(id);
    view.spec = value(rows).spec;
    values_.push_back(std::move(view));
    return static_cast<ValueId>(values_.size()) - 1;
  }

  void replace(size_t i, const ops::Op& op, std::vector<ValueId> args) {
    std::vector<TensorSpec> specs;
    for (const ValueId id : args) specs.push_back(id == kNoValue ? ops::absent() : value(id).spec);
    instructions_[i].plan = backend_.plan(op, specs);
    instructions_[i].op = op;
    instructions_[i].args = std::move(args);
  }

  bool fuse_forward(size_t i) {
    using Product = ops::DenseForward;
    using Then = ops::ActivationForward;
    const auto* const product = std::get_if<Product>(&instructions_[i].op);
    const auto* const then = std::get_if<Then>(&instructions_[i + 1].op);
    if (!product || product->activation != ops::Activation::kNone || !then ||
        !is_fused_here(then->activation) || !follows(i, Product::kY, Then::kX, Then::kY)) {
      return false;
    }
    const ValueId z = arg(i, Product::kY);
    const bool is_used = is_used_later(z);
    // The CPU would compute z first in any case. Apart, the activation can be repeated alone.
    if (is_used && backend_.device().kind() == DeviceKind::kCpu) return false;
    std::vector<ValueId> args = instructions_[i].args;
    args[Product::kY] = as_rows(arg(i + 1, Then::kY), z);
    args[Product::kZ] = is_used ? z : kNoValue;
    replace(i, Product{then->activation}, std::move(args));
    return true;
  }

  bool fuse_backward(size_t i) {
    using Product = ops::DenseBackwardData;
    using Then = ops::ActivationBackward;
    const auto* const product = std::get_if<Product>(&instructions_[i].op);
    const auto* const then = std::get_if<Then>(&instructions_[i + 1].op);
    if (!product || product->activation != ops::Activation::kNone || !then ||
        !is_fused_here(then->activation) || !follows(i, Product::kDx, Then::kDy, Then::kDx)) {
      return false;
    }
    const ValueId dx = arg(i, Product::kDx), saved = arg(i + 1, Then::kSaved);
    const TensorSpec& spec = value(saved).spec;
    if (spec.layout != Layout::row_major() || spec.dtype != value(dx).spec.dtype ||
        is_used_later(dx)) {
      return false;
    }
    std::vector<ValueId> args = instructions_[i].args;
    args[Product::kDx] = as_rows(arg(i + 1, Then::kDx), dx);
    args[Product::kSaved] = as_rows(saved, dx);
    replace(i, Product{then->activation}, std::move(args));
    return true;
  }

  std::vector<Instruction>& instructions_;
  size_t& forward_;
  std::vector<Value>& values_;
  ops::Backend& backend_;
  std::vector<int> uses_;  // by storage: the uses by instructions after the next one
};

}  // namespace

void fuse_activations(std::vector<Instruction>& instructions, size_t& forward,
                      std::vector<Value>& values, ops::Backend& backend) {
  ActivationFusion(instructions, forward, values, backend).run();
}

}  // namespace trireme::model
