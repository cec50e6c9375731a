#include "launch/table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/text.h"
#include "trainer/base/process.h"

namespace trireme::cli {
namespace {

constexpr size_t kGap = 2;

size_t width_of(const std::string& text) {
  return std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
}

std::string cell(const std::string& text, size_t width, bool right) {
  const std::string space(width - width_of(text), ' ');
  return right ? space + text : text + space;
}

}  // namespace

Table::Table(std::vector<Column> columns) : columns_(std::move(columns)) {
  for (Column& column : columns_) column.title = printable(column.title);
}

void Table::add(std::vector<std::string> row) {
  for (std::string& cell : row) cell = printable(cell);
  rows_.push_back(std::move(row));
}

std::string Table::text(int columns, bool color) const {
  std::vector<size_t> widths;
  for (size_t c = 0; c < columns_.size(); ++c) {
    size_t width = width_of(columns_[c].title);
    for (const auto& row : rows_) width = std::max(width, width_of(row[c]));
    widths.push_back(width);
  }
  std::vector<size_t> shown(columns_.size());
  std::iota(shown.begin(), shown.end(), size_t{0});
  const auto total = [&] {
    size_t sum = 0;
    for (size_t c : shown) sum += widths[c] + kGap;
    return sum - kGap;
  };
  while (columns > 0 && shown.size() > 1 && total() > static_cast<size_t>(columns)) {
    shown.erase(
        std::ranges::min_element(shown, {}, [&](size_t c) { return columns_[c].priority; }));
  }

  const auto line = [&](const auto& cell_of) {
    std::string cells;
    for (size_t c : shown) {
      if (!cells.empty()) cells.append(kGap, ' ');
      cells += cell(cell_of(c), widths[c], columns_[c].number);
    }
    cells.erase(cells.find_last_not_of(' ') + 1);
    return cells;
  };
  const std::string title = line([&](size_t c) { return columns_[c].title; });
  std::string lines = (color ? "\x1b[1m" + title + "\x1b[0m" : title) + "\n";
  for (const auto& row : rows_) lines += line([&](size_t c) { return row[c]; }) + "\n";
  return lines;
}

std::string Table::fitting() const {
  return text(train::stdout_is_terminal() ? train::terminal_columns() : 0,
              train::stdout_in_color());
}

std::string Table::full_width() const { return text(0, train::stdout_in_color()); }

}  // namespace trireme::cli
