// Text tables for terminals.
#pragma once

#include <string>
#include <vector>

namespace trireme::cli {

class Table {
 public:
  struct Column {
    std::string title;
    bool number = false;  // right-aligned
    int priority = 0;     // columns of the lowest priority are dropped if there is no room
  };
  // Titles and cells are made printable().
  explicit Table(std::vector<Column> columns);

  void add(std::vector<std::string> row);
  bool empty() const { return rows_.empty(); }
  // Returns the table with lines of at most `columns` characters (0 for no limit), and with a bold
  // title if `color` is set. Cells are UTF-8.
  std::string text(int columns, bool color) const;
  // Returns the table for stdout: limited to the terminal's width if it is a terminal.
  std::string fitting() const;
  // Returns the table for stdout with all columns.
  std::string full_width() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

}  // namespace trireme::cli
