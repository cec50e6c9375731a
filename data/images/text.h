// Words on pictures, in a typeface of its own: printable ASCII, everything else is shown as "?".
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "data/images/image.h"

namespace trireme {

using Color = std::array<uint8_t, 3>;  // red, green, blue

// A line of text, in dots, of which each becomes a square of `scale` x `scale` pixels.
inline constexpr int kTextHeight = 9;  // what hangs below the line included
int text_width(std::string_view text);

// The text where it is no wider than `width` dots, else as much of it as fits before an ellipsis,
// which draw_text knows.
std::string fit_text(std::string_view text, int width);

// `top` and `left`: of the first letter, in pixels; what lies outside of the picture, which has 3
// channels, is left out.
void draw_text(const ImageView& image, int top, int left, std::string_view text, int scale,
               const Color& color);

}  // namespace trireme
