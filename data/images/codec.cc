#include "data/images/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/file_format.h"
#include "data/images/image_reader.h"
#include "data/images/orientation.h"

namespace trireme::data {
namespace {

using namespace std::string_view_literals;

std::string_view as_text(std::span<const uint8_t> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

bool is_jpeg(std::span<const uint8_t> bytes) { return as_text(bytes).starts_with("\xFF\xD8"sv); }
bool is_png(std::span<const uint8_t> bytes) { return as_text(bytes).starts_with("\x89PNG"sv); }

// Returns the name of the format ("GIF"), or the first bytes if it is unknown.
std::string identify_other(std::span<const uint8_t> bytes) {
  if (const std::string_view known = format_of(as_text(bytes)); !known.empty()) {
    return std::string(known);
  }
  const auto begin = bytes.first(std::min<size_t>(bytes.size(), 8));
  if (std::ranges::all_of(begin, [](uint8_t byte) { return byte == 0; })) return "zeros";
  return fmt::format("an unknown format that begins with {:02x}", fmt::join(begin, " "));
}

void check(const DecodeRequest& request, ImageSize size) {
  const Region& region = request.region;
  const bool within = region.top >= 0 && region.left >= 0 && region.height >= 1 &&
                      region.width >= 1 && region.height <= size.height - region.top &&
                      region.width <= size.width - region.left;
  const bool supported = request.channels == 1 || request.channels == 3;
  const int shrink = request.shrink;
  if (!within || !supported || (shrink != 1 && shrink != 2 && shrink != 4 && shrink != 8)) {
    throw Error(fmt::format("cannot decode {}x{} at ({}, {}) of {}x{} at 1/{} to {} channels",
                            region.height, region.width, region.top, region.left, size.height,
                            size.width, shrink, request.channels));
  }
}

}  // namespace

void check_size(int64_t height, int64_t width, int64_t max_pixels) {
  if (height < 1 || width < 1) {
    throw ImageError(fmt::format("the image is empty: {}x{} pixels", height, width));
  }
  if (height > max_pixels / width) {
    throw ImageError(fmt::format("the image has {}x{} pixels, more than the maximum of {}{}",
                                 height, width, max_pixels,
                                 max_pixels < kMaxPixels ? " (data.decode.max_pixels)" : ""));
  }
  // The maximum of JPEG. Transforms of longer rows would take far more time and memory per pixel.
  constexpr int64_t kMaxSide = 65535;
  if (height > kMaxSide || width > kMaxSide) {
    throw ImageError(
        fmt::format("the image has {}x{} pixels; a side has at most {}", height, width, kMaxSide));
  }
}

void rgb_to_gray(const uint8_t* rgb, uint8_t* gray, std::ptrdiff_t pixels) {
  for (std::ptrdiff_t i = 0; i < pixels; ++i) {
    gray[i] = static_cast<uint8_t>(
        (rgb[3 * i] * 19595 + rgb[3 * i + 1] * 38470 + rgb[3 * i + 2] * 7471 + 0x8000) >> 16);
  }
}

void cmyk_to_rgb(const uint8_t* cmyk, uint8_t* rgb, std::ptrdiff_t pixels) {
  for (std::ptrdiff_t i = 0; i < pixels; ++i) {
    const int light = cmyk[4 * i + 3];
    for (std::ptrdiff_t c = 0; c < 3; ++c) {
      // The product divided by 255, rounded.
      const int product = (255 - cmyk[4 * i + c]) * light + 128;
      rgb[3 * i + c] = static_cast<uint8_t>(std::max(light - (((product >> 8) + product) >> 8), 0));
    }
  }
}

struct Decoder::State {
  enum class Step { kOpen, kPlan, kDecode };

  void expect(Step step) const {
    if (next != step) throw Error("Decoder: open, plan and decode must be called in this order");
  }

  State(int64_t max, bool apply)
      : max_pixels(max),
        apply_exif_orientation(apply),
        jpeg(create_jpeg_reader()),
        png(create_png_reader()) {}

  const int64_t max_pixels;
  const bool apply_exif_orientation;
  const std::unique_ptr<ImageReader> jpeg;
  const std::unique_ptr<ImageReader> png;
  ImageReader* reader = nullptr;
  Orientation orientation;
  ImageSize stored;  // size of the image before its orientation is applied
  ImageInfo info;
  ImageSize read;  // size of the part that the reader returns
  Image unturned;  // that part, if it has to be turned
  int channels = 0;
  Step next = Step::kOpen;
};

Decoder::Decoder(int64_t max_pixels, bool apply_exif_orientation)
    : state_(std::make_unique<State>(max_pixels, apply_exif_orientation)) {}
Decoder::~Decoder() = default;

const ImageInfo& Decoder::open(std::span<const uint8_t> bytes) {
  State& state = *state_;
  state.next = State::Step::kOpen;
  if (bytes.empty()) throw ImageError("the file is empty");
  if (!is_jpeg(bytes) && !is_png(bytes)) {
    throw ImageError("neither JPEG nor PNG, but " + identify_other(bytes));
  }
  state.reader = is_jpeg(bytes) ? state.jpeg.get() : state.png.get();
  state.info = state.reader->open(bytes);
  check_size(state.info.size.height, state.info.size.width, state.max_pixels);
  state.orientation = state.apply_exif_orientation ? orientation_of(bytes) : Orientation();
  state.stored = state.info.size;
  state.info.size = state.orientation.upright(state.stored);
  state.next = State::Step::kPlan;
  return state.info;
}

DecodePlan Decoder::plan(const DecodeRequest& request) {
  State& state = *state_;
  state.expect(State::Step::kPlan);
  check(request, state.info.size);
  DecodeRequest as_stored = request;
  as_stored.region = state.orientation.to_stored(request.region, state.stored);
  const DecodePlan plan = state.reader->plan(as_stored);
  state.read = plan.size;
  state.channels = request.channels;
  state.next = State::Step::kDecode;
  return {state.orientation.to_upright(plan.covers, state.stored),
          state.orientation.upright(plan.size)};
}

void Decoder::decode(const ImageView& to) {
  State& state = *state_;
  state.expect(State::Step::kDecode);
  if (to.size() != state.orientation.upright(state.read) || to.channels != state.channels) {
    throw Error("Decoder: the output does not have the planned size and channels");
  }
  state.next = State::Step::kOpen;
  if (state.orientation.is_upright()) return state.reader->decode(to);
  const ImageView unturned = state.unturned.reshape(state.read, state.channels);
  state.reader->decode(unturned);
  state.orientation.copy(unturned, to);
}

}  // namespace trireme::data
