// Words for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

// The candidate with the fewest edits from `word`; empty when none is close enough to be meant.
std::string nearest(std::string_view word, std::span<const std::string> candidates);
// "; did you mean 'momentum'?" or nothing.
std::string did_you_mean(std::string_view word, std::span<const std::string> candidates);

std::string format_bytes(double bytes);       // "25.0 MiB"
std::string format_count(double count);       // "11.2 M"
std::string format_duration(double seconds);  // "1h 02m 03s", "2m 03s", "3.1s"

}  // namespace trireme
