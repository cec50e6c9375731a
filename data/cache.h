// Images that are kept decoded, by number: in memory, or in a file that ranks and runs share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/images/image.h"

namespace trireme::data {

// For any thread.
class ImageCache {
 public:
  virtual ~ImageCache() = default;
  // The image, contiguous, to be read only; it stays as long as the cache. Empty: it is not kept
  // (yet).
  virtual std::optional<ImageView> find(int64_t index) const = 0;
  // Keeps a copy, if there is room and nothing is kept there. A image that is kept twice must be
  // the same.
  virtual void keep(int64_t index, const ImageView& image) = 0;
};

// Of `count` images of any size, as many as fit into so many bytes, in the order in which they
// come. Throws ConfigError when there is no address space for so many.
std::unique_ptr<ImageCache> make_memory_cache(int64_t count, int64_t bytes);

// What a cache file holds.
struct CacheContents {
  int64_t count = 0;
  ImageSize size;
  int channels = 0;
  uint64_t identity = 0;  // of what the images are made of, and how
};

// Of images that all have one size. The file is made when it is not there or empty, all of it at
// once, so that a full disk shows when it is opened; processes that do so at once wait for each
// other. Images are checked when they are first read; a damaged one counts as not kept. Throws
// DataError when there is no room, when the file holds something else, or when it may not be
// written and images are missing.
std::unique_ptr<ImageCache> open_cache_file(const std::string& path, const CacheContents& contents);

}  // namespace trireme::data
