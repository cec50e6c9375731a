#include "ops/cpu/channel_view.h"

#include "ops/cpu/dnnl.h"

namespace trireme::ops::cpu {
namespace {

// Returns X if the layout is nCdhwXc without gaps, otherwise 0.
int64_t channel_block(const TensorSpec& spec) {
  const auto* layout = dynamic_cast<const DnnlLayout*>(spec.layout.opaque());
  if (!layout) return 0;
  const dnnl_memory_desc_t& desc = layout->desc().data;
  const dnnl_blocking_desc_t& blocking = desc.format_desc.blocking;
  if (desc.format_kind != dnnl_blocked || blocking.inner_nblks != 1 || blocking.inner_idxs[0] != 1)
    return 0;
  const int64_t block = blocking.inner_blks[0];
  int64_t stride = block;
  for (int i = desc.ndims - 1; i >= 0; --i) {
    if (desc.dims[i] > 1 && blocking.strides[i] != stride) return 0;
    stride *= i == 1 ? desc.padded_dims[1] / block : desc.padded_dims[i];
  }
  return block;
}

}  // namespace

std::optional<ChannelView> ChannelView::of(const TensorSpec& spec) {
  const Shape& shape = spec.shape;
  if (shape.rank() < 2) return std::nullopt;
  ChannelView view{.rows = shape[0], .channels = shape[1], .spatial = 1};
  for (int i = 2; i < shape.rank(); ++i) view.spatial *= shape[i];
  view.stored = view.channels;
  switch (spec.layout.kind()) {
    case Layout::Kind::kAny:
      return std::nullopt;
    case Layout::Kind::kRowMajor:
      // With one position per channel, vectors run over channels.
      view.contiguous = view.spatial > 1;
      view.per_group = view.contiguous ? 1 : kLanes;
      break;
    case Layout::Kind::kChannelsLast:
      view.contiguous = false;
      view.per_group = kLanes;
      break;
    case Layout::Kind::kBlocked:
      view.per_group = channel_block(spec);
      if (view.per_group != 8 && view.per_group != 16) return std::nullopt;
      view.stored = (view.channels + view.per_group - 1) / view.per_group * view.per_group;
      break;
  }
  view.groups = (view.channels + view.per_group - 1) / view.per_group;
  return view;
}

Layout ChannelView::nearest(const TensorSpec& spec) {
  if (of(spec)) return spec.layout;
  return spec.shape.rank() == 4 && !spec.layout.is_any() ? Layout::channels_last()
                                                         : Layout::row_major();
}

Run ChannelView::run(int64_t group) const {
  Run run{.rows = rows, .row_stride = row_stride()};
  if (contiguous) {
    const int64_t elements = spatial * per_group;
    run.offset = group * elements;
    run.stride = kLanes;
    run.full = elements / kLanes;
    run.partial_offset = run.full * kLanes;
    run.width = static_cast<int>(elements % kLanes);
    run.partial = run.width > 0;
    return run;
  }
  run.offset = group * per_group;
  run.stride = channels;
  run.width = static_cast<int>(channels_in(group));
  (run.width == kLanes ? run.full : run.partial) = spatial;
  return run;
}

}  // namespace trireme::ops::cpu
