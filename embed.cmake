# Bytes of a file as a C++ source: extern const std::string_view SYMBOL, in NAMESPACE.
#   cmake -D FILE=config.desc -D NAMESPACE=trireme::train -D SYMBOL=kConfigDescriptors -D OUT=config_descriptors.cc -P embed.cmake
file(READ "${FILE}" bytes HEX)
string(REGEX REPLACE "(..)" "\\\\x\\1" bytes "${bytes}")
# A literal has a length that compilers must take: pieces of 4000 bytes, joined by the compiler.
string(LENGTH "${bytes}" length)
set(literal "")
set(at 0)
while(at LESS length)
  string(SUBSTRING "${bytes}" ${at} 16000 piece)
  string(APPEND literal "    \"${piece}\"\n")
  math(EXPR at "${at} + 16000")
endwhile()
math(EXPR size "${length} / 4")
file(WRITE "${OUT}" "// Written by embed.cmake.
#include <string_view>

namespace ${NAMESPACE} {

extern const std::string_view ${SYMBOL};
const std::string_view ${SYMBOL}{
${literal},
    ${size}};

}  // namespace ${NAMESPACE}
")
