#include "core/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/utf8.h"

namespace trireme {

size_t edit_distance(std::string_view a, std::string_view b) {
  // The rows of the table of distances between prefixes: of this letter of `a` and of those before.
  std::vector<size_t> row(b.size() + 1), last(b.size() + 1), second_last(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    second_last.swap(last);
    last.swap(row);
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j + 1] + 1, row[j] + 1, last[j] + (a[i] != b[j])});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], second_last[j - 1] + 1);
      }
    }
  }
  return row.back();
}

std::string nearest(std::string_view word, std::span<const std::string> candidates) {
  // Comparing two words takes as long as the product of their lengths.
  constexpr size_t kMaxWord = 100;
  constexpr size_t kMaxCandidates = 10000;
  if (word.size() > kMaxWord) return {};
  candidates = candidates.first(std::min(candidates.size(), kMaxCandidates));
  size_t best = std::max<size_t>(2, word.size() / 2) + 1;
  std::string found;
  for (const std::string& candidate : candidates) {
    if (candidate.size() > kMaxWord) continue;
    // The distance is at least the difference of the lengths.
    if (std::max(word.size(), candidate.size()) >= best + std::min(word.size(), candidate.size())) {
      continue;
    }
    const size_t distance = edit_distance(word, candidate);
    if (distance < best) {
      best = distance;
      found = candidate;
    }
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string found = nearest(word, candidates);
  return found.empty() ? "" : fmt::format("; did you mean '{}'?", found);
}

namespace {

// Returns true for control characters, line separators and changes of the writing direction.
bool acts_on_terminals(int32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || (code >= 0x2028 && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069) || code == 0x200e || code == 0x200f || code == 0x61c;
}

}  // namespace

std::string printable(std::string_view text, size_t max) {
  if (text.size() > max) {
    const size_t end = text.size() - max / 2;
    return fmt::format("{} ... ({} bytes) ... {}", printable(text.substr(0, max / 2), max),
                       text.size() - 2 * (max / 2), printable(text.substr(end), max));
  }
  std::string result;
  while (!text.empty()) {
    const auto [code, length] = utf8_character(text, 0);
    if (length == 0) {
      result += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[0]));
    } else if (code == '\n') {
      result += "\\n";
    } else if (acts_on_terminals(code)) {
      result += code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(std::max<size_t>(1, length));
  }
  return result;
}

std::string printable_message(std::string_view text) {
  constexpr size_t kMaxLine = 4000;  // bytes
  std::string result;
  while (true) {
    const size_t end = text.find('\n');
    result += printable(text.substr(0, end), kMaxLine);
    if (end == text.npos) return result;
    result += '\n';
    text.remove_prefix(end + 1);
  }
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

std::string_view trimmed(std::string_view text, std::string_view blanks) {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

std::string format_bytes(double bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (bytes >= 1024 && unit + 1 < std::size(kUnits)) bytes /= 1024, ++unit;
  return unit == 0 ? fmt::format("{:.0f} B", bytes) : fmt::format("{:.1f} {}", bytes, kUnits[unit]);
}

std::string format_count(double count) {
  constexpr const char* kUnits[] = {"", " k", " M", " G", " T"};
  size_t unit = 0;
  while (count >= 1000 && unit + 1 < std::size(kUnits)) count /= 1000, ++unit;
  return unit == 0 ? fmt::format("{:.0f}", count) : fmt::format("{:.2f}{}", count, kUnits[unit]);
}

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  if (seconds < 60) return fmt::format("{:.1f}s", seconds);
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 3600) return fmt::format("{}m {:02}s", whole / 60, whole % 60);
  return fmt::format("{}h {:02}m {:02}s", whole / 3600, whole / 60 % 60, whole % 60);
}

std::string base64(std::span<const uint8_t> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    const std::span<const uint8_t> group =
        bytes.subspan(at, std::min<size_t>(3, bytes.size() - at));
    uint32_t bits = 0;
    for (size_t i = 0; i < 3; ++i) bits = bits << 8 | (i < group.size() ? group[i] : 0U);
    for (size_t i = 0; i < 4; ++i) {
      text += i <= group.size() ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

}  // namespace trireme
