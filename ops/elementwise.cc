#include "ops/elementwise.h"

#include <fmt/format.h>

namespace trireme::ops {
namespace {

// Checks that `whole` is the concatenation of the `parts` args from `first` on along axis 1.
void check_joined(const Checker& c, int whole, int first, int parts) {
  c.count(static_cast<size_t>(parts) + 1);
  if (parts < 1) c.refuse("needs at least one part");
  Shape part = c.shape(first), total = part;
  total[1] = 0;
  for (int i = first; i < first + parts; ++i) total[1] += c.channels(i);
  c.is(whole, total);
  for (int i = first; i < first + parts; ++i) {
    part[1] = c.shape(i)[1];
    c.is(i, part);
  }
}

}  // namespace

const OpInfo Add::kInfo{.name = "add",
                        .args = {{"a", Use::kIn}, {"b", Use::kIn}, {"y", Use::kOut}},
                        .aliases = {{kY, kA}, {kY, kB}}};
void Add::check(const Checker& c) const {
  c.is(kB, c.shape(kA));
  c.is(kY, c.shape(kA));
}

const OpInfo Concat::kInfo{
    .name = "concat", .args = {{"y", Use::kOut}, {"input", Use::kIn}}, .variadic = true};
void Concat::check(const Checker& c) const { check_joined(c, kY, kFirstInput, inputs); }

const OpInfo Split::kInfo{
    .name = "split", .args = {{"x", Use::kIn}, {"output", Use::kOut}}, .variadic = true};
void Split::check(const Checker& c) const { check_joined(c, kX, kFirstOutput, outputs); }

const OpInfo Reorder::kInfo{.name = "reorder", .args = {{"from", Use::kIn}, {"to", Use::kOut}}};
void Reorder::check(const Checker& c) const {
  c.is(kTo, c.shape(kFrom));
  const DType from = c.dtype(kFrom), to = c.dtype(kTo);
  if (from != to && !(is_floating(from) && is_floating(to))) {
    c.refuse(fmt::format("got {} and {}; need the same dtype or floating-point ones", name_of(from),
                         name_of(to)));
  }
}

const OpInfo NormalizeInput::kInfo{.name = "normalize_input",
                                   .args = {{"x", Use::kIn}, {"y", Use::kOut}}};
void NormalizeInput::check(const Checker& c) const {
  c.is(kY, c.shape(kX));
  const auto n = static_cast<size_t>(c.channels(kX));
  for (size_t size : {mean.size(), stddev.size()}) {
    if (size != 1 && size != n) {
      c.refuse(fmt::format(
          "got {} means or standard deviations for {} channels; need 1 or one per channel", size,
          n));
    }
  }
}

}  // namespace trireme::ops
