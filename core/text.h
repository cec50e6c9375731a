// Formatting and comparison of human-readable text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// Returns the number of insertions, deletions and substitutions of characters, and swaps of
// neighbors, that turn one string into the other (optimal string alignment distance).
size_t edit_distance(std::string_view a, std::string_view b);
// Returns the candidate with the smallest edit distance to `word`, or an empty string if none is
// close enough to be a likely misspelling.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// Returns "; did you mean 'momentum'?", or an empty string if no candidate is close enough.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

std::string upper(std::string text);  // ASCII letters only
// Returns `text` without leading and trailing characters that are in `blanks`.
std::string_view trimmed(std::string_view text, std::string_view blanks = " \t");

inline double percent(double part, double whole) { return whole > 0 ? 100 * part / whole : 0; }

// Returns text of a file that others may have written in a form that is safe to print: control
// characters, line breaks, changes of the writing direction and bytes that are not UTF-8 become \n,
// \u202e or \xff, and of a text longer than `max` bytes only the beginning and the end remain.
std::string printable(std::string_view text, size_t max = 300);

// Returns a message in which each line is printable(): every message to a terminal or a log goes
// through this, since it may contain paths and names of others.
std::string printable_message(std::string_view text);

std::string format_bytes(double bytes);       // "25.0 MiB"
std::string format_count(double count);       // "11.2 M"
std::string format_duration(double seconds);  // "1h 02m 03s", "2m 03s", "3.1s"

std::string base64(std::span<const uint8_t> bytes);  // RFC 4648, with padding

}  // namespace trireme
