#include "data/contact_sheet.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "data/images/resize.h"
#include "data/images/text.h"

namespace trireme {
namespace {

constexpr Color kGround = {250, 250, 248};
constexpr Color kInk = {64, 64, 68};
constexpr int kMargin = 16;  // around all
constexpr int kGap = 12;     // between pictures
constexpr int kAboveCaption = 6;
constexpr int kBelowLine = 2;     // dots between the lines of a caption
constexpr int kSmallShown = 128;  // small pictures are enlarged up to this
constexpr int kLargeShown = 160;  // and larger ones than this shrunk to it

std::vector<std::string_view> lines_of(std::string_view caption) {
  std::vector<std::string_view> lines;
  while (!caption.empty()) {
    const size_t end = std::min(caption.find('\n'), caption.size());
    lines.push_back(caption.substr(0, end));
    caption.remove_prefix(std::min(end + 1, caption.size()));
  }
  return lines;
}

// Where everything goes.
struct SheetPlan {
  int columns = 0, rows = 0;
  ImageSize shown;  // of the largest picture
  int text_scale = 1;
  int lines = 0;  // of the longest caption

  int line_height() const { return (kTextHeight + kBelowLine) * text_scale; }
  int cell_height() const {
    return shown.height + (lines > 0 ? kAboveCaption + lines * line_height() : 0);
  }
  ImageSize sheet() const {
    return {2 * kMargin + rows * (cell_height() + kGap) - kGap,
            2 * kMargin + columns * (shown.width + kGap) - kGap};
  }
  int top(size_t cell) const {
    return kMargin + static_cast<int>(cell) / columns * (cell_height() + kGap);
  }
  int left(size_t cell) const {
    return kMargin + static_cast<int>(cell) % columns * (shown.width + kGap);
  }
};

// A whole factor where pictures are enlarged.
double factor_of(ImageSize largest, int zoom) {
  const int side = std::max(largest.height, largest.width);
  if (zoom > 0) return zoom;
  if (side > kLargeShown) return static_cast<double>(kLargeShown) / side;
  return std::max(1, kSmallShown / side);
}

ImageSize scaled(ImageSize size, double factor) {
  const auto side = [&](int pixels) {
    return std::max(1, static_cast<int>(pixels * factor + 0.5));
  };
  return {side(size.height), side(size.width)};
}

SheetPlan plan_sheet(std::span<const SheetPicture> pictures, const SheetStyle& style,
                     double factor) {
  SheetPlan plan;
  const auto count = static_cast<int>(pictures.size());
  plan.columns = std::clamp(style.columns, 1, count);
  plan.rows = (count + plan.columns - 1) / plan.columns;
  bool large_fits = true;
  for (const SheetPicture& picture : pictures) {
    const ImageSize size = scaled(picture.image.size(), factor);
    plan.shown.height = std::max(plan.shown.height, size.height);
    plan.shown.width = std::max(plan.shown.width, size.width);
  }
  for (const SheetPicture& picture : pictures) {
    const std::vector<std::string_view> lines = lines_of(picture.caption);
    plan.lines = std::max(plan.lines, static_cast<int>(lines.size()));
    for (const std::string_view line : lines) {
      large_fits = large_fits && 2 * text_width(line) <= plan.shown.width;
    }
  }
  plan.text_scale = large_fits ? 2 : 1;
  return plan;
}

void clear(const ImageView& sheet) {
  for (int y = 0; y < sheet.height; ++y) {
    for (int x = 0; x < sheet.width; ++x) {
      std::copy(kGround.begin(), kGround.end(), sheet.row(y) + 3 * x);
    }
  }
}

class Painter {
 public:
  Painter(const ImageView& sheet, const SheetPlan& plan, double factor)
      : sheet_(sheet), plan_(plan), factor_(factor) {}

  void paint(size_t cell, const SheetPicture& picture) {
    const ImageSize size = scaled(picture.image.size(), factor_);
    const int top = plan_.top(cell) + (plan_.shown.height - size.height) / 2;
    const int left = plan_.left(cell) + (plan_.shown.width - size.width) / 2;
    show(picture.image, sheet_.part({top, left, size.height, size.width}));
    int line_top = plan_.top(cell) + plan_.shown.height + kAboveCaption;
    for (const std::string_view line : lines_of(picture.caption)) {
      const std::string text = fit_text(line, plan_.shown.width / plan_.text_scale);
      const int spare = plan_.shown.width - text_width(text) * plan_.text_scale;
      draw_text(sheet_, line_top, plan_.left(cell) + spare / 2, text, plan_.text_scale, kInk);
      line_top += plan_.line_height();
    }
  }

 private:
  void show(const ImageView& image, const ImageView& at) {
    const Filter filter = factor_ >= 1 ? Filter::kNearest : Filter::kBilinear;
    const Box whole{0, 0, static_cast<double>(image.height), static_cast<double>(image.width)};
    if (image.channels == 3) return resizer_.resize(image, whole, at, filter);
    const ImageView grey = grey_.reshape(at.size(), 1);
    resizer_.resize(image, whole, grey, filter);
    for (int y = 0; y < at.height; ++y) {
      for (int x = 0; x < at.width; ++x) std::fill_n(at.row(y) + 3 * x, 3, grey.row(y)[x]);
    }
  }

  const ImageView sheet_;
  const SheetPlan plan_;
  const double factor_;
  Resizer resizer_;
  Image grey_;
};

}  // namespace

Image contact_sheet(std::span<const SheetPicture> pictures, const SheetStyle& style) {
  ImageSize largest;
  for (const SheetPicture& picture : pictures) {
    largest.height = std::max(largest.height, picture.image.height);
    largest.width = std::max(largest.width, picture.image.width);
  }
  const double factor = factor_of(largest, style.zoom);
  const SheetPlan plan = plan_sheet(pictures, style, factor);
  Image sheet;
  sheet.reshape(plan.sheet(), 3);
  clear(sheet.view());
  Painter painter(sheet.view(), plan, factor);
  for (size_t i = 0; i < pictures.size(); ++i) painter.paint(i, pictures[i]);
  return sheet;
}

}  // namespace trireme
