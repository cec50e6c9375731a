#include "data/transforms/transform.h"

#include "core/error.h"
#include "data/transforms/transforms.h"

namespace trireme::data {

std::unique_ptr<Transform> make_transform(const TransformConfig& config, const std::string& path) {
  switch (config.kind_case()) {
    case TransformConfig::kResize:
      return make_resize(config.resize(), path + ".resize");
    case TransformConfig::kCenterCrop:
      return make_center_crop(config.center_crop(), path + ".center_crop");
    case TransformConfig::kRandomCrop:
      return make_random_crop(config.random_crop(), path + ".random_crop");
    case TransformConfig::kRandomResizedCrop:
      return make_random_resized_crop(config.random_resized_crop(), path + ".random_resized_crop");
    case TransformConfig::kPad:
      return make_pad(config.pad(), path + ".pad");
    case TransformConfig::kHorizontalFlip:
      return make_horizontal_flip(config.horizontal_flip(), path + ".horizontal_flip");
    case TransformConfig::kVerticalFlip:
      return make_vertical_flip(config.vertical_flip(), path + ".vertical_flip");
    case TransformConfig::kColorJitter:
      return make_color_jitter(config.color_jitter(), path + ".color_jitter");
    case TransformConfig::kGrayscale:
      return make_grayscale(config.grayscale(), path + ".grayscale");
    case TransformConfig::kRandAugment:
      return make_rand_augment(config.rand_augment(), path + ".rand_augment");
    case TransformConfig::kTrivialAugment:
      return make_trivial_augment(config.trivial_augment(), path + ".trivial_augment");
    case TransformConfig::kRandomErasing:
      return make_random_erasing(config.random_erasing(), path + ".random_erasing");
    case TransformConfig::KIND_NOT_SET:
      break;
  }
  throw ConfigError(path, "has no transform; set one, such as resize {}");
}

}  // namespace trireme::data
