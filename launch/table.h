// Tables for people on the terminal.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

class Table {
 public:
  struct Column {
    std::string title;
    bool number = false;  // stands at the right
    int worth = 0;        // where the width does not do, columns that are worth least go first
  };
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  void add(std::vector<std::string> row) { rows_.push_back(std::move(row)); }
  bool empty() const { return rows_.empty(); }
  // Lines of at most `columns` characters (0: of any length), as far as the columns that are worth
  // most fit; the title bold with `color`. Cells are UTF-8 or plain text.
  std::string text(int columns, bool color) const;
  // For stdout: as wide as its terminal, of any length elsewhere.
  std::string fitting() const;
  // For stdout, of any length.
  std::string whole() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trireme::cli
