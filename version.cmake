# The version of what is built, as C++ in OUT/version.cc and as text in OUT/version; both are written only where they change.
# In a clone it is RELEASE+gitTIME.COMMIT, such as 0.1.0+git20261123142233.1a2b3c4d with the commit's time in UTC: what is
# committed later is the later version for dpkg, too. Elsewhere it is RELEASE.
#   cmake -D SOURCE=. -D RELEASE=0.1.0 -D OUT=build/release -P version.cmake
set(version "${RELEASE}")
if(EXISTS "${SOURCE}/.git") # not of a repository that the sources have been unpacked in
  execute_process(
    COMMAND ${CMAKE_COMMAND} -E env TZ=UTC git -C "${SOURCE}" log -1 --no-show-signature --format=%cd.%H
            --date=format-local:%Y%m%d%H%M%S
    OUTPUT_VARIABLE commit ERROR_QUIET)
  if(commit MATCHES "^([0-9]+\\.[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f])")
    string(APPEND version "+git${CMAKE_MATCH_1}")
  endif()
endif()
file(CONFIGURE OUTPUT "${OUT}/version" CONTENT "@version@\n" @ONLY)
file(CONFIGURE OUTPUT "${OUT}/version.cc" @ONLY CONTENT [[
// Written by version.cmake.
#include "core/version.h"

namespace trireme {

const char* version() { return "@version@"; }

}  // namespace trireme
]])
