// PNG with libpng, which reports errors by longjmp, see try_calls().
#include <fmt/format.h>
#include <png.h>

#include <array>
#include <csetjmp>
#include <cstdio>
#include <cstring>

#include "data/images/image_reader.h"

namespace trireme::data {
namespace {

// The maximum compression ratio of deflate, to detect headers that declare more pixels than the
// data can have.
constexpr uint64_t kMaxCompression = 1032;

class PngReader final : public ImageReader {
 public:
  ~PngReader() override { close(); }

  ImageInfo open(std::span<const uint8_t> bytes) override;
  DecodePlan plan(const DecodeRequest& request) override;
  void decode(const ImageView& to) override;

 private:
  template <class Calls>
  void guarded(const Calls& calls);
  void close() { png_destroy_read_struct(&png_, &info_, nullptr); }
  static void read(png_structp png, png_bytep to, size_t count);
  [[noreturn]] static void fail(png_structp png, png_const_charp message);

  void read_header();
  void check_header() const;
  std::string format() const;
  bool colored() const { return (png_get_color_type(png_, info_) & PNG_COLOR_MASK_COLOR) != 0; }
  void transform(int channels);
  void read_rows(const ImageView& to);
  void read_interlaced(const ImageView& to);
  void take(const uint8_t* row, uint8_t* to, int channels) const;

  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  std::span<const uint8_t> bytes_;  // the file
  size_t position_ = 0;
  bool ended_ = false;  // libpng failed because the data ended
  std::array<char, 128> message_{};
  std::jmp_buf jump_;
  int rows_done_ = 0;
  Region region_;
  size_t row_bytes_ = 0;  // size of the rows that libpng returns
  std::vector<uint8_t> memory_;
  std::vector<png_bytep> rows_;
};

template <class Calls>
void PngReader::guarded(const Calls& calls) {
  if (try_calls(jump_, calls)) return;
  const std::string where = rows_done_ > 0 ? fmt::format(", after row {} of {}", rows_done_,
                                                         png_get_image_height(png_, info_))
                                           : "";
  if (ended_) throw ImageError("PNG data ends early" + where);
  throw ImageError(fmt::format("PNG cannot be decoded{}: {}", where, message_.data()));
}

void PngReader::fail(png_structp png, png_const_charp message) {
  auto& reader = *static_cast<PngReader*>(png_get_error_ptr(png));
  std::snprintf(reader.message_.data(), reader.message_.size(), "%s", message);
  std::longjmp(reader.jump_, 1);
}

void PngReader::read(png_structp png, png_bytep to, size_t count) {
  auto& reader = *static_cast<PngReader*>(png_get_io_ptr(png));
  if (count > reader.bytes_.size() - reader.position_) {
    reader.ended_ = true;
    png_error(png, "the data ends");
  }
  std::memcpy(to, reader.bytes_.data() + reader.position_, count);
  reader.position_ += count;
}

void PngReader::read_header() {
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, [](png_structp, const char*) {});
  info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
  if (info_ == nullptr) {
    std::snprintf(message_.data(), message_.size(), "out of memory");
    std::longjmp(jump_, 1);
  }
  png_set_read_fn(png_, this, read);
  png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  // Ignore all chunks that do not affect the pixels, such as profiles and texts.
  png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_user_limits(png_, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // check_size decides
  png_read_info(png_, info_);
}

void PngReader::check_header() const {
  const int64_t height = png_get_image_height(png_, info_);
  const int64_t width = png_get_image_width(png_, info_);
  check_size(height, width);
  const uint64_t size = static_cast<uint64_t>(height) * (png_get_rowbytes(png_, info_) + 1);
  if (size / kMaxCompression > bytes_.size()) {
    throw ImageError(fmt::format("PNG data ends early: {} bytes for {}x{} pixels", bytes_.size(),
                                 height, width));
  }
}

std::string PngReader::format() const {
  const int type = png_get_color_type(png_, info_);
  return fmt::format("{}{}{}PNG",
                     png_get_interlace_type(png_, info_) == PNG_INTERLACE_NONE ? "" : "interlaced ",
                     png_get_bit_depth(png_, info_) == 16 ? "16-bit " : "",
                     type == PNG_COLOR_TYPE_PALETTE       ? "palette "
                     : (type & PNG_COLOR_MASK_COLOR) == 0 ? "gray "
                                                          : "");
}

ImageInfo PngReader::open(std::span<const uint8_t> bytes) {
  close();
  bytes_ = bytes;
  position_ = 0;
  ended_ = false;
  rows_done_ = 0;
  guarded([&] { read_header(); });
  check_header();
  return {{static_cast<int>(png_get_image_height(png_, info_)),
           static_cast<int>(png_get_image_width(png_, info_))},
          format()};
}

DecodePlan PngReader::plan(const DecodeRequest& request) {
  region_ = request.region;
  guarded([&] { transform(request.channels); });
  return {region_, region_.size()};
}

// Sets up libpng to convert rows to 8-bit gray or RGB. Color is converted to gray by take().
void PngReader::transform(int channels) {
  png_set_scale_16(png_);
  png_set_expand(png_);
  png_set_strip_alpha(png_);
  if (channels == 3 && !colored()) png_set_gray_to_rgb(png_);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  row_bytes_ = png_get_rowbytes(png_, info_);
}

// Copies the region's part of a row, converting it to gray if necessary.
void PngReader::take(const uint8_t* row, uint8_t* to, int channels) const {
  if (channels == 1 && colored()) {
    rgb_to_gray(row + std::ptrdiff_t{3} * region_.left, to, region_.width);
  } else {
    std::memcpy(to, row + std::ptrdiff_t{channels} * region_.left,
                static_cast<size_t>(region_.width) * channels);
  }
}

void PngReader::read_rows(const ImageView& to) {
  for (; rows_done_ < region_.top; ++rows_done_) png_read_row(png_, memory_.data(), nullptr);
  const bool direct = row_bytes_ == static_cast<size_t>(to.row_bytes());
  for (int y = 0; y < to.height; ++y, ++rows_done_) {
    png_read_row(png_, direct ? to.row(y) : memory_.data(), nullptr);
    if (!direct) take(memory_.data(), to.row(y), to.channels);
  }
}

// Reads all rows, since rows are only complete after the last interlacing pass.
void PngReader::read_interlaced(const ImageView& to) {
  png_read_image(png_, rows_.data());
  for (int y = 0; y < to.height; ++y) {
    take(rows_[region_.top + y], to.row(y), to.channels);
  }
}

void PngReader::decode(const ImageView& to) {
  const bool interlaced = png_get_interlace_type(png_, info_) != PNG_INTERLACE_NONE;
  rows_.resize(interlaced ? png_get_image_height(png_, info_) : 1);
  memory_.resize(rows_.size() * row_bytes_);
  for (size_t y = 0; y < rows_.size(); ++y) rows_[y] = memory_.data() + y * row_bytes_;
  guarded([&] { interlaced ? read_interlaced(to) : read_rows(to); });
  if (interlaced) memory_ = {};  // the size of the image
  close();
}

}  // namespace

std::unique_ptr<ImageReader> create_png_reader() { return std::make_unique<PngReader>(); }

std::vector<uint8_t> encode_png(const ImageView& image) {
  check_size(image.height, image.width);
  png_image header{};
  header.version = PNG_IMAGE_VERSION;
  header.height = static_cast<png_uint_32>(image.height);
  header.width = static_cast<png_uint_32>(image.width);
  header.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(header);
  std::vector<uint8_t> bytes(size);
  if (png_image_write_to_memory(&header, bytes.data(), &size, 0, image.pixels,
                                static_cast<png_int_32>(image.stride), nullptr) == 0) {
    throw ImageError(fmt::format("cannot be encoded as PNG: {}", header.message));
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace trireme::data
