# Puts style and scripts into page.html, and all of it into a C++ source.
#   cmake -D FOLDER=launch/report -D OUT=template.cc -P embed.cmake
file(READ ${FOLDER}/page.html html)
file(READ ${FOLDER}/page.css css)
set(js "")
foreach(script chart confusion page)
  file(READ ${FOLDER}/${script}.js text)
  string(APPEND js "${text}")
endforeach()
string(REPLACE "{{css}}" "${css}" html "${html}")
string(REPLACE "{{js}}" "${js}" html "${html}")
# A literal has a length that compilers must take: pieces of at most 8000 characters, joined by the compiler.
string(LENGTH "${html}" length)
set(literal "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${html}" ${at} 8000 piece)
  string(APPEND literal "    R\"~~(${piece})~~\"\n")
  math(EXPR at "${at} + 8000")
endwhile()
file(WRITE ${OUT} "// Written by embed.cmake.
#include <string_view>

namespace trireme {

extern const std::string_view kReportTemplate;
const std::string_view kReportTemplate =
${literal};

}  // namespace trireme
")
