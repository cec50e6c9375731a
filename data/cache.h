// A cache of decoded images by sample index, in memory or in a file that ranks and runs share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "data/images/image.h"

namespace trireme::data {

// Thread-safe.
class ImageCache {
 public:
  virtual ~ImageCache() = default;
  // Returns the image, contiguous and read-only, which stays valid as long as the cache, or nullopt
  // if it is not cached.
  virtual std::optional<ImageView> find(int64_t index) const = 0;
  // Stores a copy of the image if there is room and the index is not cached yet. Images stored at
  // the same index must be equal.
  virtual void put(int64_t index, const ImageView& image) = 0;
};

// Returns a cache in memory for up to `count` images of any size. It stores images as they arrive
// until `bytes` are used. Throws ConfigError if the address space cannot be reserved.
std::unique_ptr<ImageCache> make_memory_cache(int64_t count, int64_t bytes);

// Describes the images in a cache file.
struct CacheContents {
  int64_t count = 0;
  ImageSize size;
  int channels = 0;
  uint64_t identity = 0;  // hash of the source files and transforms
};

// Returns a cache in a file, of images that all have the same size. Creates the file if it does not
// exist or is empty, and allocates all of its space at once, so that a full disk is detected here;
// processes that open it concurrently wait for each other. An image's checksum is verified when it
// is first read; a damaged image counts as not cached. Throws DataError if the disk is full, if the
// file has other contents, or if it is read-only and images are missing.
std::unique_ptr<ImageCache> open_cache_file(const std::string& path, const CacheContents& contents);

}  // namespace trireme::data
