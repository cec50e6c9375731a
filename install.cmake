# The rules of `cmake --install`, which installs the program, its scripts, configurations, data, guides, completions and manual
# pages, and of `cpack`, which packs the same files as a .deb and as an archive. The paths PREFIX/bin and PREFIX/share/trireme
# are fixed, because the program finds one from the other (core/installation.h).
install(CODE [[
  if(CMAKE_INSTALL_PREFIX MATCHES ";")
    message(FATAL_ERROR "The prefix ${CMAKE_INSTALL_PREFIX} contains a semicolon, which separates names in CMake.")
  endif()]])
set_target_properties(trireme PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON) # for an MPI outside of the system's folders
install(TARGETS trireme trireme-sentencepiece RUNTIME DESTINATION bin)
foreach(script get-data supervise)
  install(PROGRAMS launch/${script} DESTINATION bin RENAME trireme-${script})
endforeach()
install(DIRECTORY launch/configs DESTINATION share/trireme)
install(DIRECTORY data/digits DESTINATION share/trireme/data)

# The guides, which link only to one another.
set(doc share/doc/trireme)
install(FILES deploy/copyright DESTINATION ${doc})
install(DIRECTORY docs DESTINATION ${doc} FILES_MATCHING PATTERN "*.md" PATTERN "*.png" PATTERN "*.svg")

# The build tree has the same layout as an installation.
set(share "${CMAKE_BINARY_DIR}/share")
file(MAKE_DIRECTORY "${share}/trireme")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/launch/configs" "${share}/trireme/configs" SYMBOLIC)
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/data" "${share}/trireme/data" SYMBOLIC)

# bash-completion loads a script by the name of the command to complete; _NAME is the fallback if there is no script NAME.
set(completion launch/completion/trireme)
foreach(command trireme trireme-get-data trireme-supervise)
  install(FILES ${completion}.bash DESTINATION share/bash-completion/completions RENAME ${command})
endforeach()
foreach(launcher mpirun mpiexec srun)
  install(FILES ${completion}.bash DESTINATION share/bash-completion/completions RENAME _${launcher})
endforeach()
foreach(folder site-functions vendor-completions) # Debian's zsh reads the latter in /usr
  install(FILES ${completion}.zsh DESTINATION share/zsh/${folder} RENAME _trireme)
endforeach()
# fish also loads scripts by the name of the command. To complete after launchers, the script must be loaded at startup.
install(FILES ${completion}.fish DESTINATION share/fish/vendor_completions.d)
install(FILES ${completion}.fish DESTINATION share/fish/vendor_conf.d)

if(NOT TRIREME_SANITIZE)
  install(DIRECTORY "${share}/man" DESTINATION share) # launch/manual.cmake
endif()

# An installation lists its files in the prefix (as relative paths), so that they can be removed. Packages have no such list,
# since package managers keep their own; their folders are made readable for everybody, regardless of the umask. CMake's own
# list in the build tree, which each installation would replace, is not written.
install(CODE [[
  get_filename_component(prefix "${CMAKE_INSTALL_PREFIX}" ABSOLUTE)
  set(root "$ENV{DESTDIR}${prefix}")
  if(root MATCHES "/_CPack_Packages/")
    file(GLOB_RECURSE entries LIST_DIRECTORIES true "${root}/*")
    foreach(entry "${root}" ${entries})
      if(IS_DIRECTORY "${entry}")
        file(CHMOD "${entry}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
      endif()
    endforeach()
  else()
    set(list "${root}/share/trireme/installed.txt")
    set(installed "")
    if(EXISTS "${list}") # of another version, whose files are still there
      file(STRINGS "${list}" installed)
    endif()
    foreach(file IN LISTS CMAKE_INSTALL_MANIFEST_FILES)
      file(RELATIVE_PATH file "${prefix}" "${file}")
      list(APPEND installed "${file}")
    endforeach()
    list(APPEND installed share/trireme/installed.txt)
    list(REMOVE_DUPLICATES installed)
    string(REPLACE ";" "\n" installed "${installed}")
    file(WRITE "${list}.new" "${installed}\n")
    file(CHMOD "${list}.new" PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
    file(RENAME "${list}.new" "${list}")
  endif()
  return()]])

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_VENDOR "The Trireme authors")
set(CPACK_PACKAGE_CONTACT "The Trireme authors <trireme@localhost>" CACHE STRING "Maintainer of the .deb")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed data-parallel training of neural networks")
set(CPACK_PACKAGE_DESCRIPTION "One program reads a configuration and trains a neural network on any number of
ranks, on CPUs or NVIDIA GPUs, started by mpirun or srun.")
set(CPACK_STRIP_FILES ON)
# The version is known only after the program has been built. The archive contains no libraries, so its name includes the system
# whose libraries it needs.
set(system ${CMAKE_SYSTEM_NAME})
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release release REGEX "^(ID|VERSION_ID)=")
  string(REGEX MATCH "(^|;)ID=\"?([^\";]+)" id "${release}")
  set(system ${CMAKE_MATCH_2})
  string(REGEX MATCH "(^|;)VERSION_ID=\"?([^\";]+)" id "${release}")
  string(APPEND system ${CMAKE_MATCH_2})
endif()
string(TOLOWER "${system}-${CMAKE_SYSTEM_PROCESSOR}" system)
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_BINARY_DIR}/package.cmake")
file(CONFIGURE OUTPUT "${CPACK_PROJECT_CONFIG_FILE}" @ONLY CONTENT [[
file(STRINGS "@CMAKE_BINARY_DIR@/version" CPACK_PACKAGE_VERSION)
set(CPACK_PACKAGE_FILE_NAME "trireme-${CPACK_PACKAGE_VERSION}-@system@")
]])
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_DEPENDS openmpi-bin)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "curl | wget")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
include(CPack)
