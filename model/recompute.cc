#include "model/recompute.h"

#include <algorithm>
#include <functional>
#include <map>
#include <span>
#include <utility>

#include "model/activations.h"

namespace trireme::model {
namespace {

using Home = Value::Home;

constexpr int kNoInstruction = -1;
constexpr size_t kSteps = 32;

// Returns the time of an instruction, in units of the time of a byte.
double cost_of(const Instruction& instruction, double flops_per_byte) {
  double bytes = 0;
  for (const TensorSpec& spec : instruction.plan->specs()) {
    bytes += static_cast<double>(spec.bytes());
  }
  return std::max(bytes, flops(instruction.op, instruction.plan->specs()) / flops_per_byte);
}

struct Listing {
  std::vector<Instruction> instructions;
  std::vector<Value> values;
};

// The instructions of a network, of which the first are the forward pass, and which of these can
// run again in the backward pass.
class ForwardPass {
 public:
  ForwardPass(const std::vector<Instruction>& instructions, size_t forward,
              const std::vector<Value>& values, double flops_per_byte)
      : instructions_(instructions),
        size_(forward),
        values_(values),
        producer_(values.size(), kNoInstruction) {
    find_producers();
    for (size_t i = 0; i < forward; ++i) {
      can_repeat_.push_back(find_can_repeat(i));
      costs_.push_back(can_repeat_[i] ? cost_of(instructions[i], flops_per_byte) : 0);
    }
  }

  size_t size() const { return size_; }
  const std::vector<Instruction>& instructions() const { return instructions_; }
  const std::vector<Value>& values() const { return values_; }
  const Value& value(ValueId id) const { return values_[id]; }

  // Returns whether a copy of the instruction that updates nothing that outlives the step has no
  // other effect than to compute its outputs.
  bool can_repeat(size_t i) const { return can_repeat_[i]; }
  double cost(size_t i) const { return costs_[i]; }

  // Returns the activations that the instruction writes.
  std::vector<ValueId> outputs(size_t i) const {
    std::vector<ValueId> found;
    for (size_t a = 0; a < instructions_[i].args.size(); ++a) {
      const ValueId arg = instructions_[i].args[a];
      if (arg == kNoValue || !instructions_[i].writes(a)) continue;
      if (value(arg).home == Home::kActivations) found.push_back(arg);
    }
    return found;
  }
  size_t output_bytes(size_t i) const {
    size_t bytes = 0;
    for (const ValueId output : outputs(i)) bytes += value(output).spec.bytes();
    return bytes;
  }

  // Returns the instruction of the forward pass that computes the value, if it can be repeated,
  // otherwise kNoInstruction.
  int repeatable_producer(ValueId arg) const {
    if (arg == kNoValue || value(arg).home != Home::kActivations) return kNoInstruction;
    const int producer = producer_[value(arg).storage];
    if (producer < 0 || producer >= std::ssize(can_repeat_)) return kNoInstruction;
    return can_repeat_[producer] ? producer : kNoInstruction;
  }

  static bool outlives_step(const Value& value) {
    return value.home == Home::kRunningStat ||
           (value.home == Home::kPort && value.index == static_cast<int>(Port::kStatesAfter));
  }

 private:
  void find_producers() {
    std::vector<int> writers(values_.size());  // by storage
    for (size_t i = 0; i < instructions_.size(); ++i) {
      for (const ValueId output : outputs(i)) {
        const int storage = value(output).storage;
        producer_[storage] = ++writers[storage] == 1 ? static_cast<int>(i) : kNoInstruction;
      }
    }
  }

  bool find_can_repeat(size_t i) const {
    const Instruction& instruction = instructions_[i];
    if (!instruction.plan) return false;
    for (size_t a = 0; a < instruction.args.size(); ++a) {
      if (instruction.args[a] == kNoValue || !instruction.writes(a)) continue;
      const Value& written = value(instruction.args[a]);
      if (outlives_step(written)) continue;
      if (written.home != Home::kActivations) return false;
      if (producer_[written.storage] != static_cast<int>(i)) return false;
    }
    return true;
  }

  const std::vector<Instruction>& instructions_;
  const size_t size_;
  const std::vector<Value>& values_;
  std::vector<int> producer_;  // by storage: the only instruction that writes it
  // By instruction of the forward pass:
  std::vector<bool> can_repeat_;
  std::vector<double> costs_;
};

// Appends copies of the instructions that are `repeated` to a listing.
class Copies {
 public:
  Copies(const ForwardPass& pass, const std::vector<bool>& repeated, Listing& to)
      : pass_(pass),
        repeated_(repeated),
        to_(to),
        done_(pass.size()),
        copy_of_(pass.values().size(), kNoValue) {
    for (const Value& value : pass.values()) storages_ = std::max(storages_, value.storage + 1);
  }

  // Appends the copies that the instruction reads, in the order of the forward pass.
  void insert_before(const Instruction& reader) {
    std::vector<int> needed;
    const auto add_producers = [&](const std::vector<ValueId>& args) {
      for (const ValueId arg : args) {
        const int producer = pass_.repeatable_producer(arg);
        if (producer < 0 || !repeated_[producer] || done_[producer]) continue;
        done_[producer] = true;
        needed.push_back(producer);
      }
    };
    add_producers(reader.args);
    for (size_t n = 0; n < needed.size(); ++n) add_producers(pass_.instructions()[needed[n]].args);
    std::ranges::sort(needed);
    for (const int i : needed) insert(i);
  }

  // Replaces values of the forward pass that have been computed again.
  void redirect(std::vector<ValueId>& args) {
    for (ValueId& arg : args) {
      const int producer = pass_.repeatable_producer(arg);
      if (producer >= 0 && done_[producer]) arg = copy_of(arg);
    }
  }

 private:
  void insert(int index) {
    const Instruction& original = pass_.instructions()[index];
    Instruction& copy = to_.instructions.emplace_back(original);
    copy.repeated = index;
    // The original has updated running statistics and carried states.
    for (size_t a = 0; a < copy.args.size(); ++a) {
      ValueId& arg = copy.args[a];
      if (arg == kNoValue || !copy.writes(a)) continue;
      if (ForwardPass::outlives_step(pass_.value(arg))) arg = kNoValue;
    }
    redirect(copy.args);
  }

  // Returns the value in the storage's copy. Views of one storage share its copy.
  ValueId copy_of(ValueId original) {
    ValueId& copy = copy_of_[original];
    if (copy != kNoValue) return copy;
    Value value = pass_.value(original);
    value.storage = storage_copy_.try_emplace(value.storage, storages_).first->second;
    storages_ = std::max(storages_, value.storage + 1);
    to_.values.push_back(std::move(value));
    return copy = static_cast<ValueId>(to_.values.size()) - 1;
  }

  const ForwardPass& pass_;
  const std::vector<bool>& repeated_;
  Listing& to_;
  std::vector<bool> done_;           // by instruction of the forward pass
  std::vector<ValueId> copy_of_;     // by value
  std::map<int, int> storage_copy_;  // by storage
  int storages_ = 0;
};

// Chooses what to repeat.
class Recomputation {
 public:
  explicit Recomputation(const ForwardPass& pass) : pass_(pass), repeated_(pass.size()) {}

  // Chooses what to repeat so that the plan does not exceed the limit, if possible.
  void fit(size_t limit) {
    if (planned_bytes() <= limit) return;
    size_t all = 0;
    for (size_t i = 0; i < pass_.size(); ++i) all += pass_.output_bytes(i);
    // Whether whole segments between kept values are cheaper depends on the network.
    std::pair<size_t, double> lowest{SIZE_MAX, 0};  // bytes above the limit, cost
    std::vector<bool> best;
    for (const size_t segment : {SIZE_MAX, size_t{0}, all / 32, all / 16, all / 8, all / 4}) {
      repeated_.assign(pass_.size(), false);
      keep_between_segments(segment);
      fit_segments(limit);
      const std::pair score{std::max(planned_bytes(), limit), cost()};
      if (score >= lowest) continue;
      lowest = score;
      best = repeated_;
    }
    repeated_ = std::move(best);
  }

  // Returns all instructions, with copies of those that were chosen.
  Listing listing() const {
    const std::vector<Instruction>& instructions = pass_.instructions();
    const auto forward_end = instructions.begin() + static_cast<ptrdiff_t>(pass_.size());
    Listing list{{instructions.begin(), forward_end}, pass_.values()};
    Copies copies(pass_, repeated_, list);
    for (auto i = forward_end; i != instructions.end(); ++i) {
      copies.insert_before(*i);
      list.instructions.push_back(*i);
      copies.redirect(list.instructions.back().args);
    }
    return list;
  }

 private:
  void fit_segments(size_t limit) {
    size_t lowest = SIZE_MAX;
    for (size_t target = limit; target > 0;) {
      const bool reached = reach(target);
      prune(reached ? target : peak());
      const size_t planned = planned_bytes();
      const size_t in_use = peak();
      if (planned <= limit || (!reached && in_use >= lowest)) return;
      lowest = std::min(lowest, in_use);
      // A plan may need more than the bytes in use; lower the target by the difference.
      if (reached) target = in_use - std::min(in_use, std::max(planned - limit, in_use / 256));
    }
  }

  double cost() const {
    double total = 0;
    for (size_t i = 0; i < pass_.size(); ++i) total += repeated_[i] ? pass_.cost(i) : 0;
    return total;
  }

  // Cuts the forward pass into segments with at least `segment` bytes of outputs. Keeps the outputs
  // between segments; they are all that the next segment reads.
  void keep_between_segments(size_t segment) {
    kept_.assign(pass_.size(), false);
    const std::vector<MemoryRequest> requests =
        lifetimes(std::span(pass_.instructions()).first(pass_.size()), pass_.values());
    std::vector<ptrdiff_t> changes(pass_.size() + 1);  // of the bytes that later instructions read
    for (const MemoryRequest& request : requests) {
      if (request.first < 0) continue;
      changes[request.first] += static_cast<ptrdiff_t>(request.bytes);
      changes[request.last] -= static_cast<ptrdiff_t>(request.bytes);
    }
    ptrdiff_t read_later = 0;
    size_t bytes = 0;
    for (size_t i = 0; i < pass_.size(); ++i) {
      read_later += changes[i];
      bytes += pass_.output_bytes(i);
      const auto own = static_cast<ptrdiff_t>(pass_.output_bytes(i));
      // Lengths of sequences, which many later instructions read, are small.
      if (bytes < segment || read_later > own + own / 64) continue;
      kept_[i] = true;
      bytes = 0;
    }
  }

  // Returns the bytes in use at each instruction of the listing.
  std::vector<size_t> measure(Listing list) const {
    share_in_place(list.instructions, list.values);
    return bytes_in_use(list.instructions, list.values);
  }
  size_t peak() const { return std::ranges::max(measure(listing())); }

  size_t planned_bytes() const {
    Listing list = listing();
    share_in_place(list.instructions, list.values);
    return plan_activations(list.instructions, list.values).bytes;
  }

  // Repeats more instructions until no more than `target` bytes are in use. Returns false and the
  // choice with the lowest peak if that is impossible.
  bool reach(size_t target) {
    std::vector<bool> best = repeated_;
    size_t lowest = SIZE_MAX;
    for (;;) {
      const Listing list = listing();
      const std::vector<size_t> in_use = measure(list);
      const auto highest = std::ranges::max_element(in_use);
      if (*highest < lowest) {
        lowest = *highest;
        best = repeated_;
      }
      if (*highest <= target) return true;
      const auto position = static_cast<int>(highest - in_use.begin());
      // In small steps, since the next peak may be elsewhere.
      const size_t step = std::min((*highest - target + 1) / 2, *highest / kSteps);
      if (!repeat_more(list, position, step)) break;
    }
    repeated_ = std::move(best);
    return false;
  }

  struct Uses {
    int last_forward = -1;
    int first_backward = -1;
  };

  // Repeats the cheapest instructions whose outputs wait at this position of the listing for the
  // backward pass, until they have `bytes` bytes. Returns false if there is none.
  bool repeat_more(const Listing& list, int position, size_t bytes) {
    std::vector<Uses> uses(list.values.size());  // by storage
    for (size_t i = 0; i < list.instructions.size(); ++i) {
      for (const ValueId arg : list.instructions[i].args) {
        if (arg == kNoValue) continue;
        Uses& use = uses[list.values[arg].storage];
        if (i < pass_.size()) {
          use.last_forward = static_cast<int>(i);
        } else if (use.first_backward < 0) {
          use.first_backward = static_cast<int>(i);
        }
      }
    }
    struct Candidate {
      size_t instruction;
      size_t bytes;
      double cost_per_byte;
    };
    std::vector<Candidate> candidates;
    for (size_t i = 0; i < pass_.size(); ++i) {
      if (!pass_.can_repeat(i) || repeated_[i] || kept_[i]) continue;
      size_t waiting = 0;
      for (const ValueId output : pass_.outputs(i)) {
        const Uses& use = uses[pass_.value(output).storage];
        if (use.last_forward < position && position < use.first_backward) {
          waiting += pass_.value(output).spec.bytes();
        }
      }
      if (waiting == 0) continue;
      double cost = 0;
      for (const size_t needed : with_inputs(i, uses)) cost += pass_.cost(needed);
      candidates.push_back({i, waiting, cost / static_cast<double>(waiting)});
    }
    std::ranges::stable_sort(candidates, {}, &Candidate::cost_per_byte);
    size_t total = 0;
    for (const Candidate& candidate : candidates) {
      if (total >= bytes) break;
      for (const size_t needed : with_inputs(candidate.instruction, uses)) repeated_[needed] = true;
      total += candidate.bytes;
    }
    return !candidates.empty();
  }

  // Returns the instruction and those that must be repeated with it, since the backward pass does
  // not use their outputs otherwise.
  std::vector<size_t> with_inputs(size_t instruction, const std::vector<Uses>& uses) const {
    std::vector<size_t> found{instruction};
    for (size_t n = 0; n < found.size(); ++n) {
      for (const ValueId arg : pass_.instructions()[found[n]].args) {
        const int producer = pass_.repeatable_producer(arg);
        if (producer < 0 || repeated_[producer] || kept_[producer]) continue;
        if (uses[pass_.value(arg).storage].first_backward >= 0) continue;
        if (std::ranges::find(found, static_cast<size_t>(producer)) != found.end()) continue;
        found.push_back(static_cast<size_t>(producer));
      }
    }
    return found;
  }

  // Repeats less where that does not exceed the target, the most expensive first. Of many
  // instructions, only the most expensive ones are tried, since each try takes time in proportion
  // to their number: the fewer, the more instructions there are.
  void prune(size_t target) {
    constexpr size_t kTries = 500, kInstructions = 1000;  // of networks with fewer, all are tried
    const size_t max_tries =
        kTries * kInstructions / std::max(kInstructions, pass_.instructions().size());
    std::vector<size_t> order;
    for (size_t i = 0; i < pass_.size(); ++i) {
      if (repeated_[i]) order.push_back(i);
    }
    std::ranges::stable_sort(order, std::greater{}, [&](size_t i) { return pass_.cost(i); });
    for (const size_t i : std::span(order).first(std::min(order.size(), max_tries))) {
      repeated_[i] = false;
      if (peak() > target) repeated_[i] = true;
    }
  }

  const ForwardPass& pass_;
  // By instruction of the forward pass:
  std::vector<bool> kept_;  // must not be repeated
  std::vector<bool> repeated_;
};

}  // namespace

double flops_per_byte(DeviceKind kind) { return kind == DeviceKind::kCpu ? 10 : 100; }

void recompute(std::vector<Instruction>& instructions, size_t forward, std::vector<Value>& values,
               ops::Backend& backend, size_t limit) {
  const ForwardPass pass(instructions, forward, values, flops_per_byte(backend.device().kind()));
  Recomputation chosen(pass);
  chosen.fit(limit);
  Listing listing = chosen.listing();
  instructions = std::move(listing.instructions);
  values = std::move(listing.values);
}

}  // namespace trireme::model
