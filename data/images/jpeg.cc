// JPEG with libjpeg-turbo, which reports errors by longjmp, see try_calls().
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <csetjmp>
#include <utility>

#include "data/images/image_reader.h"
#include "data/images/libjpeg.h"

namespace trireme::data {
namespace {

// Handles errors of libjpeg.
struct ErrorHandler {
  jpeg_error_mgr base;  // must be the first member: libjpeg passes a pointer to it
  std::jmp_buf jump;
  enum class Failure { kRefused, kDamaged, kEndsEarly } failure;
  std::array<char, JMSG_LENGTH_MAX> message;
};

ErrorHandler& handler_of(j_common_ptr codec) {
  return *reinterpret_cast<ErrorHandler*>(codec->err);
}

[[noreturn]] void fail(j_common_ptr codec, ErrorHandler::Failure failure) {
  ErrorHandler& handler = handler_of(codec);
  handler.failure = failure;
  handler.base.format_message(codec, handler.message.data());
  std::longjmp(handler.jump, 1);
}

// Returns true for warnings of libjpeg that do not affect the pixels.
bool is_harmless(int message) {
  switch (message) {
    case JWRN_ADOBE_XFORM:
    case JWRN_BOGUS_ICC:
    case JWRN_EXTRANEOUS_DATA:
    case JWRN_JFIF_MAJOR:
    case JWRN_NOT_SEQUENTIAL:
      return true;
    default:
      return false;
  }
}

void install(ErrorHandler& handler) {
  jpeg_std_error(&handler.base);
  handler.base.error_exit = [](j_common_ptr codec) {
    fail(codec, ErrorHandler::Failure::kRefused);
  };
  handler.base.emit_message = [](j_common_ptr codec, int level) {
    if (level < 0 && !is_harmless(codec->err->msg_code)) {
      fail(codec, ErrorHandler::Failure::kDamaged);
    }
  };
}

// Called when libjpeg needs more data. All data is in memory from the start, so the file is
// truncated.
void end_of_data(j_decompress_ptr decoder) {
  decoder->err->msg_code = JWRN_JPEG_EOF;
  fail(reinterpret_cast<j_common_ptr>(decoder), ErrorHandler::Failure::kEndsEarly);
}

void install(jpeg_source_mgr& source) {
  source.init_source = [](j_decompress_ptr) {};
  source.fill_input_buffer = [](j_decompress_ptr decoder) -> boolean {
    end_of_data(decoder);
    return FALSE;
  };
  source.skip_input_data = [](j_decompress_ptr decoder, long bytes) {
    if (bytes <= 0) return;
    if (static_cast<size_t>(bytes) > decoder->src->bytes_in_buffer) end_of_data(decoder);
    decoder->src->next_input_byte += bytes;
    decoder->src->bytes_in_buffer -= bytes;
  };
  source.resync_to_restart = jpeg_resync_to_restart;
  source.term_source = [](j_decompress_ptr) {};
}

// Limits for progressive JPEG. A small malicious file can have very many scans, and each one
// processes all coefficients.
constexpr int kMaxScans = 500;
constexpr int64_t kMaxScannedPixels = int64_t{2} << 30;

void check_scans(j_common_ptr codec) {
  const auto* decoder = reinterpret_cast<j_decompress_ptr>(codec);
  const int64_t pixels = int64_t{decoder->image_width} * decoder->image_height;
  const int64_t scans =
      std::min<int64_t>(kMaxScans, kMaxScannedPixels / std::max<int64_t>(pixels, 1));
  if (decoder->input_scan_number <= std::max<int64_t>(scans, 1)) return;
  std::snprintf(handler_of(codec).message.data(), JMSG_LENGTH_MAX, "more than %d scans",
                static_cast<int>(scans));
  handler_of(codec).failure = ErrorHandler::Failure::kRefused;
  std::longjmp(handler_of(codec).jump, 1);
}

std::string format_of(const jpeg_decompress_struct& decoder) {
  const std::string_view colors = [&] {
    switch (decoder.jpeg_color_space) {
      case JCS_GRAYSCALE:
        return "gray ";
      case JCS_RGB:
        return "RGB ";
      case JCS_CMYK:
        return "CMYK ";
      case JCS_YCCK:
        return "YCCK ";
      default:
        return "";
    }
  }();
  return fmt::format("{}{}JPEG", decoder.progressive_mode ? "progressive " : "", colors);
}

class JpegReader final : public ImageReader {
 public:
  JpegReader() {
    install(errors_);
    install(source_);
    progress_.progress_monitor = check_scans;
  }
  ~JpegReader() override { jpeg_destroy_decompress(&decoder_); }

  ImageInfo open(std::span<const uint8_t> bytes) override;
  DecodePlan plan(const DecodeRequest& request) override;
  void decode(const ImageView& to) override;

 private:
  // Runs calls of libjpeg. Throws ImageError if one of them fails.
  template <class Calls>
  void guarded(const Calls& calls) {
    if (!try_calls(errors_.jump, calls)) throw ImageError(failure());
  }
  std::string failure() const;
  void create();
  void check_header(size_t bytes) const;
  J_COLOR_SPACE colors_for(int channels) const;
  bool can_crop_rows() const;
  // Sets left_ and width_ to the smallest range of columns that contains the wanted ones and that
  // libjpeg can crop to.
  void choose_columns(JDIMENSION wanted_left, JDIMENSION wanted_right);
  void start();
  void prepare_rows(const ImageView& to);
  void read_rows(const ImageView& to);
  void read_cmyk_rows(const ImageView& to);

  ErrorHandler errors_{};
  jpeg_source_mgr source_{};
  jpeg_progress_mgr progress_{};
  jpeg_decompress_struct decoder_{};
  int shrink_ = 1;
  JDIMENSION top_ = 0, left_ = 0, width_ = 0;  // decoded region, in pixels of the result

  // Temporary rows. They are used for CMYK, and for output rows that begin at a multiple of
  // kStreamed bytes: libjpeg-turbo writes such rows with non-temporal stores, which bypass the
  // caches. That takes 25% longer for a small image, whose pixels are needed next.
  static constexpr int kAtOnce = 16;  // rows; usually the height of a row of blocks
  static constexpr size_t kStreamed = 32;
  std::vector<uint8_t> memory_;
  std::array<uint8_t*, kAtOnce> rows_{};
};

std::string JpegReader::failure() const {
  const int64_t row = int64_t{decoder_.output_scanline} * shrink_;
  const int64_t rows = decoder_.image_height;
  const std::string where = decoder_.output_height == 0 ? ", in its header"
                            : row == 0
                                ? ", before its first row"
                                : fmt::format(", after row {} of {}", std::min(row, rows), rows);
  switch (errors_.failure) {
    case ErrorHandler::Failure::kEndsEarly:
      return "JPEG data ends early" + where;
    case ErrorHandler::Failure::kDamaged:
      return fmt::format("JPEG data is damaged{}: {}", where, errors_.message.data());
    case ErrorHandler::Failure::kRefused:
      break;
  }
  return fmt::format("JPEG cannot be decoded: {}", errors_.message.data());
}

void JpegReader::check_header(size_t bytes) const {
  const jpeg_decompress_struct& header = decoder_;
  check_size(header.image_height, header.image_width);
  if (header.jpeg_color_space == JCS_UNKNOWN) {
    throw ImageError(
        fmt::format("JPEG cannot be decoded: it has {} components", header.num_components));
  }
  // With Huffman coding, 8x8 pixels take at least one bit. Checking this before decoding prevents
  // allocating memory for a header that declares more pixels than the data can have.
  const auto pixels = static_cast<uint64_t>(header.image_height) * header.image_width;
  if (!header.arith_code && pixels / 512 > bytes) {
    throw ImageError(fmt::format("JPEG data ends early: {} bytes for {}x{} pixels", bytes,
                                 header.image_height, header.image_width));
  }
}

// Called for each image: otherwise an image without tables would be decoded with those of the
// previous one.
void JpegReader::create() {
  jpeg_destroy_decompress(&decoder_);
  decoder_.err = &errors_.base;
  jpeg_create_decompress(&decoder_);
  decoder_.src = &source_;
  decoder_.progress = &progress_;
}

ImageInfo JpegReader::open(std::span<const uint8_t> bytes) {
  source_.next_input_byte = bytes.data();
  source_.bytes_in_buffer = bytes.size();
  guarded([&] {
    create();
    jpeg_read_header(&decoder_, TRUE);
  });
  check_header(bytes.size());
  return {{static_cast<int>(decoder_.image_height), static_cast<int>(decoder_.image_width)},
          format_of(decoder_)};
}

J_COLOR_SPACE JpegReader::colors_for(int channels) const {
  const J_COLOR_SPACE stored = decoder_.jpeg_color_space;
  if (stored == JCS_CMYK || stored == JCS_YCCK) return JCS_CMYK;
  return channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
}

bool JpegReader::can_crop_rows() const {
  // A component may be scaled less than others. libjpeg-turbo 2.1 ignores this when it crops, and
  // returns wrong pixels if the columns of such a component have to be interpolated.
  const std::span components(decoder_.comp_info, decoder_.num_components);
  return std::ranges::all_of(components, [&](const jpeg_component_info& component) {
    return component.DCT_scaled_size == decoder_.min_DCT_scaled_size ||
           component.DCT_scaled_size * component.h_samp_factor ==
               decoder_.min_DCT_scaled_size * decoder_.max_h_samp_factor;
  });
}

void JpegReader::choose_columns(JDIMENSION wanted_left, JDIMENSION wanted_right) {
  left_ = 0;
  width_ = decoder_.output_width;
  if (!can_crop_rows()) return;
  // The width of a block. libjpeg rounds the left border down to a multiple of it.
  const auto align =
      static_cast<JDIMENSION>(decoder_.min_DCT_scaled_size *
                              (decoder_.num_components > 1 ? decoder_.max_h_samp_factor : 1));
  // Subsampled colors are interpolated between neighbors, so the neighbors of the wanted columns
  // are needed, too.
  const auto margin = static_cast<JDIMENSION>(decoder_.max_h_samp_factor - 1);
  left_ = (wanted_left - std::min(wanted_left, margin)) / align * align;
  const JDIMENSION right = (wanted_right + margin + align - 1) / align * align;
  width_ = std::min(right, decoder_.output_width) - left_;
}

DecodePlan JpegReader::plan(const DecodeRequest& request) {
  decoder_.out_color_space = colors_for(request.channels);
  decoder_.do_block_smoothing = FALSE;  // its result would depend on the cropped region
  decoder_.scale_num = static_cast<unsigned>(8 / request.shrink);
  decoder_.scale_denom = 8;
  guarded([&] { jpeg_calc_output_dimensions(&decoder_); });
  shrink_ = request.shrink;
  const Region& region = request.region;
  const auto up = [&](int position) { return (position + shrink_ - 1) / shrink_; };
  top_ = static_cast<JDIMENSION>(region.top / shrink_);
  const int height = up(region.top + region.height) - static_cast<int>(top_);
  choose_columns(static_cast<JDIMENSION>(region.left / shrink_),
                 static_cast<JDIMENSION>(up(region.left + region.width)));
  const Region result{static_cast<int>(top_), static_cast<int>(left_), height,
                      static_cast<int>(width_)};
  return {{result.top * shrink_, result.left * shrink_, result.height * shrink_,
           result.width * shrink_},
          result.size()};
}

void JpegReader::start() {
  jpeg_start_decompress(&decoder_);
  JDIMENSION left = left_, width = width_;
  jpeg_crop_scanline(&decoder_, &left, &width);
  if (left != left_ || width != width_) ERREXIT(&decoder_, JERR_BAD_CROP_SPEC);
  if (top_ > 0) jpeg_skip_scanlines(&decoder_, top_);
}

void JpegReader::prepare_rows(const ImageView& to) {
  const bool cmyk = decoder_.out_color_space == JCS_CMYK;
  const size_t row_bytes = cmyk ? 4 * std::ptrdiff_t{to.width} : to.row_bytes();
  const size_t stride = (row_bytes + kStreamed - 1) / kStreamed * kStreamed;
  memory_.resize(kStreamed * 2 + stride * kAtOnce);
  const auto begin = reinterpret_cast<uintptr_t>(memory_.data());
  uint8_t* row = memory_.data() + (kStreamed - begin % kStreamed) + kStreamed / 4;
  for (uint8_t*& each : rows_) each = std::exchange(row, row + stride);
}

void JpegReader::read_rows(const ImageView& to) {
  std::array<JSAMPROW, kAtOnce> rows;
  for (int y = 0; y < to.height;) {
    const int wanted = std::min(kAtOnce, to.height - y);
    for (int i = 0; i < wanted; ++i) {
      uint8_t* const row = to.row(y + i);
      const bool streamed = reinterpret_cast<uintptr_t>(row) % kStreamed == 0;
      rows[i] = streamed ? rows_[i] : row;
    }
    const auto count = static_cast<int>(
        jpeg_read_scanlines(&decoder_, rows.data(), static_cast<JDIMENSION>(wanted)));
    for (int i = 0; i < count; ++i) {
      const uint8_t* const row = rows[i];
      if (row != to.row(y + i)) std::copy_n(row, to.row_bytes(), to.row(y + i));
    }
    y += count;
  }
}

void JpegReader::read_cmyk_rows(const ImageView& to) {
  uint8_t* cmyk = rows_[0];
  for (int y = 0; y < to.height; ++y) {
    jpeg_read_scanlines(&decoder_, &cmyk, 1);
    if (to.channels == 3) {
      cmyk_to_rgb(cmyk, to.row(y), to.width);
    } else {
      cmyk_to_rgb(cmyk, cmyk, to.width);
      rgb_to_gray(cmyk, to.row(y), to.width);
    }
  }
}

void JpegReader::decode(const ImageView& to) {
  prepare_rows(to);
  guarded([&] {
    start();
    decoder_.out_color_space == JCS_CMYK ? read_cmyk_rows(to) : read_rows(to);
    jpeg_abort_decompress(&decoder_);
  });
}

struct Encoder {
  Encoder() { install(errors); }
  ~Encoder() { jpeg_destroy_compress(&encoder); }
  Encoder(const Encoder&) = delete;
  Encoder& operator=(const Encoder&) = delete;

  ErrorHandler errors{};
  jpeg_destination_mgr destination{};
  jpeg_compress_struct encoder{};
};

void encode(Encoder& to, const ImageView& image, int quality) {
  jpeg_compress_struct& encoder = to.encoder;
  encoder.err = &to.errors.base;
  jpeg_create_compress(&encoder);
  encoder.dest = &to.destination;
  encoder.image_height = static_cast<JDIMENSION>(image.height);
  encoder.image_width = static_cast<JDIMENSION>(image.width);
  encoder.input_components = image.channels;
  encoder.in_color_space = image.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(&encoder);
  jpeg_set_quality(&encoder, quality, TRUE);
  jpeg_start_compress(&encoder, TRUE);
  for (int y = 0; y < image.height; ++y) {
    JSAMPROW row = image.row(y);
    jpeg_write_scanlines(&encoder, &row, 1);
  }
  jpeg_finish_compress(&encoder);
}

// Returns an upper bound of the size of a JPEG file: as in libjpeg-turbo, 3 bytes per pixel, with
// the size rounded up to blocks.
size_t max_bytes(const ImageView& image) {
  const auto padded = [](int extent) { return (static_cast<size_t>(extent) + 15) / 16 * 16; };
  return 3 * padded(image.height) * padded(image.width) + 2048;
}

void install(jpeg_destination_mgr& destination, std::span<uint8_t> memory) {
  destination.next_output_byte = memory.data();
  destination.free_in_buffer = memory.size();
  destination.init_destination = [](j_compress_ptr) {};
  destination.empty_output_buffer = [](j_compress_ptr encoder) -> boolean {
    ERREXIT(encoder, JERR_BUFFER_SIZE);
    return FALSE;
  };
  destination.term_destination = [](j_compress_ptr) {};
}

}  // namespace

std::unique_ptr<ImageReader> create_jpeg_reader() { return std::make_unique<JpegReader>(); }

std::vector<uint8_t> encode_jpeg(const ImageView& image, int quality) {
  check_size(image.height, image.width);
  std::vector<uint8_t> bytes(max_bytes(image));
  Encoder encoder;
  install(encoder.destination, bytes);
  if (!try_calls(encoder.errors.jump, [&] { encode(encoder, image, quality); })) {
    throw ImageError(fmt::format("cannot be encoded as JPEG: {}", encoder.errors.message.data()));
  }
  bytes.resize(bytes.size() - encoder.destination.free_in_buffer);
  return bytes;
}

}  // namespace trireme::data
