// Words for people.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Characters to put in, take out or replace to make one of the other.
size_t edit_distance(std::string_view a, std::string_view b);
// The candidate with the fewest edits from `word`; empty when none is close enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// "; did you mean 'momentum'?" or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

std::string upper(std::string text);  // of ASCII letters
// Without those of `blanks` at both ends.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t");

inline double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

std::string format_bytes(double bytes);       // "25.0 MiB"
std::string format_count(double count);       // "11.2 M"
std::string format_duration(double seconds);  // "1h 02m 03s", "2m 03s", "3.1s"

std::string base64(std::span<const uint8_t> bytes);  // RFC 4648, with padding

}  // namespace trireme
