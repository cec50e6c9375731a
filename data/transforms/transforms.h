// Factory functions of the individual transforms, called by make_transform. `path` is the name of
// the configuration field in error messages ("data.transform[2].color_jitter"). They throw
// ConfigError if a field is invalid.
#pragma once

#include <memory>
#include <string>

#include "data/data.pb.h"
#include "data/transforms/transform.h"

namespace trireme::data {

std::unique_ptr<Transform> make_resize(const ResizeConfig& config, const std::string& path);
std::unique_ptr<Transform> make_center_crop(const CropConfig& config, const std::string& path);
std::unique_ptr<Transform> make_random_crop(const RandomCropConfig& config,
                                            const std::string& path);
std::unique_ptr<Transform> make_random_resized_crop(const RandomResizedCropConfig& config,
                                                    const std::string& path);
std::unique_ptr<Transform> make_pad(const PadConfig& config, const std::string& path);
std::unique_ptr<Transform> make_horizontal_flip(const ProbabilityConfig& config,
                                                const std::string& path);
std::unique_ptr<Transform> make_vertical_flip(const ProbabilityConfig& config,
                                              const std::string& path);
std::unique_ptr<Transform> make_color_jitter(const ColorJitterConfig& config,
                                             const std::string& path);
std::unique_ptr<Transform> make_grayscale(const ProbabilityConfig& config, const std::string& path);
std::unique_ptr<Transform> make_rand_augment(const RandAugmentConfig& config,
                                             const std::string& path);
std::unique_ptr<Transform> make_trivial_augment(const TrivialAugmentConfig& config,
                                                const std::string& path);
std::unique_ptr<Transform> make_random_erasing(const RandomErasingConfig& config,
                                               const std::string& path);

}  // namespace trireme::data
