#include <algorithm>
#include <cmath>

#include "tests/ops/reference/plans.h"

namespace trireme::ops::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double product(const double* a, const double* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// to += factor * from.
void add(double factor, const double* from, int64_t count, double* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += factor * from[i];
}

using Values = std::vector<double>;

// A saved step has i, f, g, o and c of LSTM, or r, z, n and r_n of GRU.
int64_t saved_of(RecurrentCell cell, int64_t hidden) {
  return (cell == RecurrentCell::kLstm ? 5 : 4) * hidden;
}

struct Layer {
  RecurrentCell cell;
  int64_t inputs, hidden;
  const double *weight_ih, *weight_hh, *bias_ih, *bias_hh;

  bool lstm() const { return cell == RecurrentCell::kLstm; }
  int64_t gates() const { return gates_of(cell) * hidden; }
  int64_t state() const { return states_of(cell) * hidden; }
  int64_t saved() const { return saved_of(cell, hidden); }

  // Replaces the state before a step by that after it.
  void step(const double* x, double* state, double* saved) const {
    const Values before(state, state + this->state());
    for (int64_t j = 0; j < hidden; ++j) {
      const auto a = [&](int64_t gate) {
        const int64_t row = gate * hidden + j;
        return bias_ih[row] + product(weight_ih + row * inputs, x, inputs);
      };
      const auto r = [&](int64_t gate) {
        const int64_t row = gate * hidden + j;
        return bias_hh[row] + product(weight_hh + row * hidden, before.data(), hidden);
      };
      if (lstm()) {
        const double i = sigmoid(a(0) + r(0)), f = sigmoid(a(1) + r(1));
        const double g = std::tanh(a(2) + r(2)), o = sigmoid(a(3) + r(3));
        const double c = f * before[static_cast<size_t>(hidden + j)] + i * g;
        state[j] = o * std::tanh(c);
        state[hidden + j] = c;
        save({i, f, g, o, c}, j, saved);
      } else {
        const double reset = sigmoid(a(0) + r(0)), z = sigmoid(a(1) + r(1)), r_n = r(2);
        const double n = std::tanh(a(2) + reset * r_n);
        state[j] = (1 - z) * n + z * before[static_cast<size_t>(j)];
        save({reset, z, n, r_n}, j, saved);
      }
    }
  }

  // The gradients of a and r of a step. `d` is the gradient of h after the step; `dstate`, [S, H],
  // becomes the part of the gradient of the state before the step that does not flow through r.
  void step_gradients(const double* saved, const double* before, const double* d, double* dstate,
                      double* da, double* dr) const {
    for (int64_t j = 0; j < hidden; ++j) {
      const auto value = [&](int64_t which) { return saved[which * hidden + j]; };
      if (lstm()) {
        const double i = value(0), f = value(1), g = value(2), o = value(3);
        const double tanh_c = std::tanh(value(4));
        const double dc = dstate[hidden + j] + d[j] * o * (1 - tanh_c * tanh_c);
        dstate[j] = 0;
        dstate[hidden + j] = dc * f;
        da[j] = dc * g * i * (1 - i);
        da[hidden + j] = dc * before[hidden + j] * f * (1 - f);
        da[2 * hidden + j] = dc * i * (1 - g * g);
        da[3 * hidden + j] = d[j] * tanh_c * o * (1 - o);
        for (int64_t gate = 0; gate < 4; ++gate) dr[gate * hidden + j] = da[gate * hidden + j];
      } else {
        const double r = value(0), z = value(1), n = value(2), r_n = value(3);
        const double dn = d[j] * (1 - z) * (1 - n * n);
        dstate[j] = d[j] * z;
        da[j] = dr[j] = dn * r_n * r * (1 - r);
        da[hidden + j] = dr[hidden + j] = d[j] * (before[j] - n) * z * (1 - z);
        da[2 * hidden + j] = dn;
        dr[2 * hidden + j] = dn * r;
      }
    }
  }

 private:
  void save(std::initializer_list<double> values, int64_t j, double* saved) const {
    if (!saved) return;
    int64_t at = j;
    for (const double value : values) {
      saved[at] = value;
      at += hidden;
    }
  }
};

template <class Op>
Layer layer_of(const Op& op, Args args, const Shape& x, const Shape& y) {
  Layer layer{op.cell, x[2],   y[2], in(args, Op::kWeightIh), in(args, Op::kWeightHh),
              nullptr, nullptr};
  if constexpr (requires { Op::kBiasIh; }) {
    layer.bias_ih = in(args, Op::kBiasIh);
    layer.bias_hh = in(args, Op::kBiasHh);
  }
  return layer;
}

Values state_of(const Layer& layer, const double* initial, int64_t sample) {
  if (!initial) return Values(static_cast<size_t>(layer.state()), 0.0);
  initial += sample * layer.state();
  return {initial, initial + layer.state()};
}

// Returns whether the state after this row is 0.
template <class Op>
bool ends_document(const Op& op, Args args, int64_t row) {
  const auto* const tokens = pointer<const int32_t>(args, Op::kTokens);
  return tokens && tokens[row] == op.document_end;
}

}  // namespace

Plan plan(const RecurrentForward& op, Specs specs) {
  using O = RecurrentForward;
  const Shape x = specs[O::kX].shape, y = specs[O::kY].shape;
  TensorSpec& workspace = specs[O::kWorkspace];
  if (!is_absent(workspace)) {
    const int64_t numbers = y[0] * y[1] * saved_of(op.cell, y[2]);
    workspace = {DType::kU8, {numbers * int64_t{sizeof(double)}}, Layout::row_major()};
  }
  return host_op(std::move(specs), [=](Args args, void*) {
    const Layer layer = layer_of(op, args, x, y);
    double* const all_saved = out(args, O::kWorkspace);
    for (int64_t sample = 0; sample < x[0]; ++sample) {
      Values state = state_of(layer, in(args, O::kInitial), sample);
      for (int64_t step = 0; step < x[1]; ++step) {
        const int64_t row = sample * x[1] + (op.reverse ? x[1] - 1 - step : step);
        layer.step(in(args, O::kX) + row * x[2], state.data(),
                   all_saved ? all_saved + row * layer.saved() : nullptr);
        std::copy_n(state.begin(), y[2], out(args, O::kY) + row * y[2]);
        if (ends_document(op, args, row)) std::ranges::fill(state, 0.0);
      }
      if (double* const last = out(args, O::kFinal)) {
        std::copy(state.begin(), state.end(), last + sample * layer.state());
      }
    }
  });
}

Plan plan(const RecurrentBackward& op, Specs specs) {
  using O = RecurrentBackward;
  const Shape x = specs[O::kX].shape, y = specs[O::kY].shape;
  std::vector<int64_t> sizes;  // of the outputs
  for (int arg = 0; arg < O::kArgs; ++arg) {
    sizes.push_back(specs[static_cast<size_t>(arg)].shape.elements());
  }
  return host_op(std::move(specs), [=](Args args, void*) {
    const Layer layer = layer_of(op, args, x, y);
    for (const int arg : {O::kDx, O::kDweightIh, O::kDweightHh, O::kDbiasIh, O::kDbiasHh}) {
      if (out(args, arg)) std::fill_n(out(args, arg), sizes[static_cast<size_t>(arg)], 0.0);
    }
    const int64_t hidden = y[2];
    Values da(static_cast<size_t>(layer.gates())), dr = da;
    for (int64_t sample = 0; sample < x[0]; ++sample) {
      Values dstate(static_cast<size_t>(layer.state()), 0.0);
      for (int64_t step = x[1] - 1; step >= 0; --step) {
        const auto row_of = [&](int64_t s) {
          return sample * x[1] + (op.reverse ? x[1] - 1 - s : s);
        };
        const int64_t row = row_of(step);
        const double* const saved = in(args, O::kWorkspace);
        Values before = state_of(layer, in(args, O::kInitial), sample);
        if (ends_document(op, args, row)) std::ranges::fill(dstate, 0.0);
        if (step > 0 && ends_document(op, args, row_of(step - 1))) {
          std::ranges::fill(before, 0.0);
        } else if (step > 0) {
          std::copy_n(in(args, O::kY) + row_of(step - 1) * hidden, hidden, before.begin());
          const double* const cell = saved + row_of(step - 1) * layer.saved() + 4 * hidden;
          if (layer.lstm()) std::copy_n(cell, hidden, before.begin() + hidden);
        }
        Values d(dstate.begin(), dstate.begin() + hidden);
        add(1, in(args, O::kDy) + row * hidden, hidden, d.data());
        layer.step_gradients(saved + row * layer.saved(), before.data(), d.data(), dstate.data(),
                             da.data(), dr.data());
        for (int64_t k = 0; k < layer.gates(); ++k) {
          const double of_a = da[static_cast<size_t>(k)], of_r = dr[static_cast<size_t>(k)];
          add(of_r, layer.weight_hh + k * hidden, hidden, dstate.data());
          if (out(args, O::kDx)) {
            add(of_a, layer.weight_ih + k * x[2], x[2], out(args, O::kDx) + row * x[2]);
          }
          if (!out(args, O::kDweightIh)) continue;
          add(of_a, in(args, O::kX) + row * x[2], x[2], out(args, O::kDweightIh) + k * x[2]);
          add(of_r, before.data(), hidden, out(args, O::kDweightHh) + k * hidden);
          out(args, O::kDbiasIh)[k] += of_a;
          out(args, O::kDbiasHh)[k] += of_r;
        }
      }
    }
  });
}

Plan plan(const CachedRecurrent& op, Specs specs) {
  using O = CachedRecurrent;
  const Shape x = specs[O::kX].shape, y = specs[O::kY].shape;
  const int64_t positions = specs[O::kCache].shape[1];
  return host_op(std::move(specs), [=](Args args, void*) {
    const Layer layer = layer_of(op, args, x, y);
    for (int64_t sample = 0; sample < x[0]; ++sample) {
      double* const cache = out(args, O::kCache) + sample * positions * layer.state();
      for (int64_t t = 0; t < x[1]; ++t) {
        const int64_t row = sample * x[1] + t;
        const int64_t position = pointer<const int32_t>(args, O::kStarts)[sample] + t;
        double* const result = out(args, O::kY) + row * y[2];
        if (position >= positions) {
          std::fill_n(result, y[2], 0.0);
          continue;
        }
        Values state = state_of(layer, position > 0 ? cache : nullptr, position - 1);
        layer.step(in(args, O::kX) + row * x[2], state.data(), nullptr);
        std::copy_n(state.begin(), y[2], result);
        if (ends_document(op, args, row)) std::ranges::fill(state, 0.0);
        std::copy(state.begin(), state.end(), cache + position * layer.state());
      }
    }
  });
}

}  // namespace trireme::ops::reference
