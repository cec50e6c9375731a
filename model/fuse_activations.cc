#include "model/fuse_activations.h"

#include <algorithm>
#include <utility>

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
    for (size_t i = 0; i + 1 < instructions_.size(); ++i) {
      if (fuse_forward(i) || fuse_backward(i)) erase(i + 1);
    }
  }

 private:
  void erase(size_t fused) {
    instructions_.erase(instructions_.begin() + static_cast<ptrdiff_t>(fused));
    if (fused < forward_) --forward_;
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

  // Returns whether an instruction after i + 1 uses the value's storage.
  bool is_used_after(size_t i, ValueId id) const {
    return std::any_of(instructions_.begin() + static_cast<ptrdiff_t>(i) + 2, instructions_.end(),
                       [&](const Instruction& instruction) {
                         return std::ranges::any_of(instruction.args, [&](ValueId used) {
                           return used != kNoValue && value(used).home == Home::kActivations &&
                                  value(used).storage == value(id).storage;
                         });
                       });
  }

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
    const bool is_used = is_used_after(i, z);
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
        is_used_after(i, dx)) {
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
};

}  // namespace

void fuse_activations(std::vector<Instruction>& instructions, size_t& forward,
                      std::vector<Value>& values, ops::Backend& backend) {
  ActivationFusion(instructions, forward, values, backend).run();
}

}  // namespace trireme::model
