#include "data/image_dataset.h"

#include <fmt/format.h>
#include <google/protobuf/text_format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "data/cache.h"
#include "data/data.pb.h"
#include "data/images/codec.h"
#include "data/records_dataset.h"
#include "data/samples.h"
#include "data/transforms/pipeline.h"

namespace trireme::data {
namespace {

// A pool of objects that threads borrow. Creates as many as are in use at once.
template <class T>
class Pool {
 public:
  class Lease {
   public:
    Lease(Pool& pool, std::unique_ptr<T> object) : pool_(pool), object_(std::move(object)) {}
    ~Lease() { pool_.release(std::move(object_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T* operator->() const { return object_.get(); }
    T& operator*() const { return *object_; }

   private:
    Pool& pool_;
    std::unique_ptr<T> object_;
  };

  template <class... Args>
  Lease borrow(Args&&... args) {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        std::unique_ptr<T> object = std::move(free_.back());
        free_.pop_back();
        return Lease(*this, std::move(object));
      }
      free_.reserve(++created_);  // so that release() does not allocate
    }
    return Lease(*this, std::make_unique<T>(std::forward<Args>(args)...));
  }

 private:
  void release(std::unique_ptr<T> object) {
    const std::lock_guard lock(mutex_);
    free_.push_back(std::move(object));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> free_;
  size_t created_ = 0;
};

SampleSpec spec_of(ImageSize size, int channels, int classes) {
  SampleSpec spec;
  spec.input = {DType::kU8, Shape{channels, size.height, size.width}, Layout::channels_last()};
  spec.target = label_spec();
  spec.classes = classes;
  spec.scale = 1.0F / 255;
  return spec;
}

ImageSize size_of_image(const SampleSpec& spec) {
  const Shape& shape = spec.input.shape;
  return {static_cast<int>(shape[1]), static_cast<int>(shape[2])};
}

ImageView output_view(std::byte* memory, const SampleSpec& spec) {
  return view_of(reinterpret_cast<uint8_t*>(memory), size_of_image(spec),
                 static_cast<int>(spec.input.shape[0]));
}

// Returns the largest factor by which the decoder may reduce an image without its region becoming
// smaller than the size it is scaled to.
int shrink_for(const Transform::Need& need) {
  int shrink = 8;
  while (shrink > 1 && (need.region.height / shrink < need.scaled_to.height ||
                        need.region.width / shrink < need.scaled_to.width)) {
    shrink /= 2;
  }
  return shrink;
}

// Returns a hash of everything that the cached images depend on.
uint64_t identity_of(const Records& records, const DataConfig& config, Part part, int fixed) {
  DataConfig relevant;
  if (fixed > 0) *relevant.mutable_decode() = config.decode();  // otherwise decodes in full
  relevant.mutable_decode()->set_apply_exif_orientation(config.decode().apply_exif_orientation());
  const auto& transforms = part == Part::kTraining ? config.transform() : config.eval_transform();
  for (int i = 0; i < fixed; ++i) *relevant.add_transform() = transforms[i];
  std::string text;
  google::protobuf::TextFormat::PrintToString(relevant, &text);
  return XXH3_64bits_withSeed(text.data(), text.size(), records.identity());
}

int checked_channels(const DataConfig& config) {
  const int channels = config.decode().channels();
  if (channels == 1 || channels == 3) return channels;
  throw ConfigError("data.decode.channels", fmt::format("{} is neither 1 nor 3", channels));
}

DecodeConfig checked(const DecodeConfig& decode) {
  if (decode.max_pixels() < 1 || decode.max_pixels() > kMaxPixels) {
    throw ConfigError("data.decode.max_pixels",
                      fmt::format("{} is not in [1, {}]", decode.max_pixels(), kMaxPixels));
  }
  return decode;
}

class ImageDataset final : public RecordsDataset {
 public:
  ImageDataset(std::unique_ptr<Records> records, const DataConfig& config, Part part, uint64_t seed)
      : RecordsDataset(std::move(records)),
        decode_(checked(config.decode())),
        channels_(checked_channels(config)),
        pipeline_(config, part, seed) {
    std::optional<ImageSize> first;
    const auto size_after = [&](int transforms) {
      std::optional<ImageSize> size = pipeline_.output_size({}, 0, transforms);
      if (size) return *size;
      if (!first) first = first_size(bad_record_limit(config));
      return *pipeline_.output_size(first, 0, transforms);
    };
    spec_ = spec_of(size_after(pipeline_.size()), channels_, records_->classes());
    open_cache(config, part, size_after);
  }

  std::optional<ImageInfo> stored_image(int64_t index) const override {
    const auto workspace = borrow_workspace();
    records_->read(index, workspace->bytes);
    try {
      return workspace->decoder.open(workspace->bytes);
    } catch (const ImageError& error) {
      throw DataError(where(index), error.what());
    }
  }

  void read(SampleId id, std::byte* input, std::byte* target) const override {
    if (id.index < 0 || id.index >= size()) {
      throw DataError(
          records_->source(),
          fmt::format("sample {} is out of range; the last one is {}", id.index, size() - 1));
    }
    const int32_t label = records_->label(id.index);
    std::memcpy(target, &label, sizeof label);
    try {
      read_image(id, output_view(input, spec_));
    } catch (const ImageError& error) {
      throw DataError(where(id.index), error.what());
    }
  }

 private:
  struct Workspace {
    Workspace(int channels, const DecodeConfig& decode)
        : decoder(decode.max_pixels(), decode.apply_exif_orientation()), canvas(channels) {}
    std::vector<uint8_t> bytes;
    Decoder decoder;
    Canvas canvas;
  };

  Pool<Workspace>::Lease borrow_workspace() const { return workspaces_.borrow(channels_, decode_); }

  // Returns the size of the first image that can be read. It must be among the first `limit` + 1.
  ImageSize first_size(std::optional<int64_t> limit) const {
    const auto workspace = borrow_workspace();
    const int64_t last = std::min(size() - 1, limit.value_or(0));
    for (int64_t index = 0;; ++index) {
      try {
        records_->read(index, workspace->bytes);
        return workspace->decoder.open(workspace->bytes).size;
      } catch (const ImageError& error) {
        if (index >= last) throw DataError(where(index), error.what());
      } catch (const DataError&) {
        if (index >= last) throw;
      }
    }
  }

  template <class SizeAfter>
  void open_cache(const DataConfig& config, Part part, const SizeAfter& size_after) {
    const CacheConfig& cache = config.cache();
    if (cache.memory_bytes() < 0) {
      throw ConfigError("data.cache.memory_bytes",
                        fmt::format("{} is less than 0", cache.memory_bytes()));
    }
    if (cache.has_file() && cache.memory_bytes() > 0) {
      throw ConfigError("data.cache",
                        "is either in memory or in a file, not both; the system keeps the "
                        "file in memory as far as there is room");
    }
    cached_transforms_ = pipeline_.fixed();
    if (cache.has_file()) {
      cached_size_ = size_after(cached_transforms_);
      // Training and evaluation have different files and transforms.
      const std::string name = cache.file() + (part == Part::kTraining ? "" : ".eval");
      cache_ =
          open_cache_file(std::filesystem::path(config.root()) / name,
                          {.count = size(),
                           .size = *cached_size_,
                           .channels = channels_,
                           .identity = identity_of(*records_, config, part, cached_transforms_)});
    } else if (cache.memory_bytes() > 0) {
      cache_ = make_memory_cache(size(), cache.memory_bytes());
    }
  }

  void read_image(SampleId id, const ImageView& output) const {
    const std::optional<ImageView> cached = cache_ ? cache_->find(id.index) : std::nullopt;
    if (cached && cached_transforms_ == pipeline_.size() && cached->size() == output.size()) {
      copy_pixels(*cached, output);
      return;
    }
    const auto workspace = borrow_workspace();
    Canvas& canvas = workspace->canvas;
    canvas.begin(output);
    int done = 0;
    if (cached) {
      canvas.borrow(*cached);
      done = cached_transforms_;
    } else {
      decode(id, *workspace);
      if (cache_) {
        pipeline_.apply(0, cached_transforms_, id, canvas);
        done = cached_transforms_;
        store(id.index, canvas.source());
      }
    }
    pipeline_.apply(done, pipeline_.size(), id, canvas);
    canvas.finish();
  }

  void decode(SampleId id, Workspace& workspace) const {
    records_->read(id.index, workspace.bytes);
    const ImageSize full = workspace.decoder.open(workspace.bytes).size;
    DecodeRequest request{
        .channels = channels_, .region = {0, 0, full.height, full.width}, .shrink = 1};
    // Cached pixels must not depend on the region that a random transform needs.
    if ((cache_ ? cached_transforms_ : pipeline_.size()) > 0) {
      if (const auto need = pipeline_.needs(full, id)) {
        if (decode_.crop()) request.region = need->region;
        if (decode_.shrink()) request.shrink = shrink_for(*need);
      }
    }
    const DecodePlan plan = workspace.decoder.plan(request);
    workspace.canvas.expect_more_images(pipeline_.allocates_from(0));
    const Canvas::Target target = workspace.canvas.allocate(plan.size);
    workspace.decoder.decode(target.image);
    workspace.canvas.commit_part(target, plan.covers, full);
  }

  void store(int64_t index, const ImageView& image) const {
    if (cached_size_ && image.size() != *cached_size_) {
      throw ImageError(
          fmt::format("is {} x {} (height x width) before the first random transform, others are "
                      "{} x {}; data.cache.file needs a resize or crop there",
                      image.height, image.width, cached_size_->height, cached_size_->width));
    }
    cache_->put(index, image);
  }

  const DecodeConfig decode_;
  const int channels_;
  const Pipeline pipeline_;
  mutable Pool<Workspace> workspaces_;
  int cached_transforms_ = 0;             // number of transforms applied to cached images
  std::optional<ImageSize> cached_size_;  // required size of cached images, if any
  std::unique_ptr<ImageCache> cache_;
};

// Applies transforms to the decoded images of another dataset.
class Transformed final : public WrappedDataset {
 public:
  Transformed(std::unique_ptr<Dataset> dataset, Pipeline pipeline)
      : WrappedDataset(std::move(dataset)),
        pipeline_(std::move(pipeline)),
        spec_(inner().spec()),
        from_(size_of_image(spec_)),
        channels_(static_cast<int>(spec_.input.shape[0])) {
    const ImageSize size = *pipeline_.output_size(from_, 0, pipeline_.size());
    spec_.input.shape = Shape{channels_, size.height, size.width};
  }

  const SampleSpec& spec() const override { return spec_; }
  bool in_memory() const override { return false; }  // a transform can fail

  std::string description() const override {
    if (spec_.input == inner().spec().input) return inner().description();
    return fmt::format("{}, transformed to {}", inner().description(),
                       spec_.input.shape.to_string());
  }

  void read(SampleId id, std::byte* input, std::byte* target) const override {
    const auto borrowed = canvases_.borrow(channels_);
    Canvas& canvas = *borrowed;
    canvas.begin(output_view(input, spec_));
    canvas.expect_more_images(pipeline_.allocates_from(0));
    const Canvas::Target original = canvas.allocate(from_);
    inner().read(id, reinterpret_cast<std::byte*>(original.image.pixels), target);
    canvas.commit(original);
    try {
      pipeline_.apply(0, pipeline_.size(), id, canvas);
      canvas.finish();
    } catch (const ImageError& error) {
      throw DataError(fmt::format("{}: sample {}", where(id.index), id.index), error.what());
    }
  }

 private:
  const Pipeline pipeline_;
  mutable Pool<Canvas> canvases_;
  SampleSpec spec_;
  ImageSize from_;
  int channels_;
};

}  // namespace

std::unique_ptr<Dataset> make_image_dataset(std::unique_ptr<Records> records,
                                            const DataConfig& config, Part part,
                                            const OpenOptions& options) {
  return std::make_unique<ImageDataset>(std::move(records), config, part, options.seed);
}

std::unique_ptr<Dataset> with_transforms(std::unique_ptr<Dataset> dataset, const DataConfig& config,
                                         Part part, const OpenOptions& options) {
  const SampleSpec& spec = dataset->spec();
  const Shape& shape = spec.input.shape;
  if (spec.input.dtype != DType::kU8 || spec.input.layout != Layout::channels_last() ||
      (shape[0] != 1 && shape[0] != 3)) {
    throw ConfigError("data.transform",
                      fmt::format("is only for images, u8 [3, H, W] or [1, H, W]; the samples are "
                                  "{} {}",
                                  name_of(spec.input.dtype), shape.to_string()));
  }
  Pipeline pipeline(config, part, options.seed);
  if (!pipeline.moving().empty() && spec.target != label_spec()) {
    const std::string target =
        fmt::format("{} {}", name_of(spec.target.dtype), spec.target.shape.to_string());
    throw ConfigError(
        pipeline.moving(),
        fmt::format("moves the objects in an image, but not its target, {}, which may depend on "
                    "their positions: it is only for class labels. Remove it, or transform inputs "
                    "and targets together before they are stored; resize, color_jitter, grayscale "
                    "and random_erasing can be used with any target",
                    target));
  }
  if (pipeline.size() == 0) return dataset;
  return std::make_unique<Transformed>(std::move(dataset), std::move(pipeline));
}

}  // namespace trireme::data
