#include "data/transforms/pipeline.h"

#include <fmt/format.h>

#include "core/error.h"

namespace trireme::data {
namespace {

constexpr int kMaxTransforms = 255;  // Draws have room for 256 indices; Mix uses the last

}  // namespace

Pipeline::Pipeline(const DataConfig& config, Part part, uint64_t seed) : seed_(seed) {
  const bool training = part == Part::kTraining;
  const auto& configs = training ? config.transform() : config.eval_transform();
  const std::string field = training ? "data.transform" : "data.eval_transform";
  if (configs.size() > kMaxTransforms) {
    throw ConfigError(
        field, fmt::format("has {} transforms, more than {}", configs.size(), kMaxTransforms));
  }
  for (const TransformConfig& each : configs) {
    const std::string path = fmt::format("{}[{}]", field, size());
    transforms_.push_back(make_transform(each, path));
    const Transform& transform = *transforms_.back();
    if (!training && transform.random()) {
      throw ConfigError(path, "is random; evaluation must see the same images each time");
    }
    if (transform.moves_objects() && moving_.empty()) {
      const auto* kind = TransformConfig::descriptor()->FindFieldByNumber(each.kind_case());
      moving_ = fmt::format("{}.{}", path, std::string(kind->name()));
    }
    if (!transform.in_place()) last_allocating_ = size() - 1;
  }
  while (fixed_ < size() && !transforms_[fixed_]->random()) ++fixed_;
}

std::optional<ImageSize> Pipeline::output_size(std::optional<ImageSize> size, int begin,
                                               int end) const {
  for (int i = begin; i < end; ++i) size = transforms_[i]->output_size(size);
  return size;
}

std::optional<Transform::Need> Pipeline::needs(ImageSize full, SampleId id) const {
  return transforms_.front()->needs(full, draws(id, 0));
}

void Pipeline::apply(int begin, int end, SampleId id, Canvas& canvas) const {
  for (int i = begin; i < end; ++i) {
    canvas.expect_more_images(allocates_from(i + 1));
    Draws drawn = draws(id, i);
    transforms_[i]->apply(canvas, drawn);
  }
  canvas.expect_more_images(allocates_from(end));
}

}  // namespace trireme::data
