# cmake --install: the program, its scripts, configurations, data, guides, completions and manual pages; cpack: the same
# as a .deb and as an archive. The program finds PREFIX/share/trireme from PREFIX/bin (core/installation.h), so these
# two are not to be chosen.
set_target_properties(trireme PROPERTIES INSTALL_RPATH_USE_LINK_PATH ON) # MPI that is not in the system's folders
install(TARGETS trireme RUNTIME DESTINATION bin)
foreach(script get-data supervise)
  install(PROGRAMS launch/${script} DESTINATION bin RENAME trireme-${script})
endforeach()
install(DIRECTORY launch/configs DESTINATION share/trireme)
install(DIRECTORY data/digits DESTINATION share/trireme/data)

# The guides, which link only to one another.
set(doc share/doc/trireme)
install(FILES deploy/copyright DESTINATION ${doc})
install(DIRECTORY docs DESTINATION ${doc} FILES_MATCHING PATTERN "*.md" PATTERN "*.png")

# A build tree holds what an installation holds.
set(share "${CMAKE_BINARY_DIR}/share")
file(MAKE_DIRECTORY "${share}/trireme")
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/launch/configs" "${share}/trireme/configs" SYMBOLIC)
file(CREATE_LINK "${CMAKE_SOURCE_DIR}/data" "${share}/trireme/data" SYMBOLIC)

# bash-completion reads a script when it is asked for that command; _NAME is for commands that do not bring their own.
set(completion launch/completion/trireme)
foreach(command trireme trireme-get-data trireme-supervise)
  install(FILES ${completion}.bash DESTINATION share/bash-completion/completions RENAME ${command})
endforeach()
foreach(launcher mpirun mpiexec srun)
  install(FILES ${completion}.bash DESTINATION share/bash-completion/completions RENAME _${launcher})
endforeach()
foreach(folder site-functions vendor-completions) # the latter is where Debian's zsh looks in /usr
  install(FILES ${completion}.zsh DESTINATION share/zsh/${folder} RENAME _trireme)
endforeach()
# fish too; what completes behind launchers has to be read before.
install(FILES ${completion}.fish DESTINATION share/fish/vendor_completions.d)
install(FILES ${completion}.fish DESTINATION share/fish/vendor_conf.d)

if(NOT TRIREME_SANITIZE)
  install(DIRECTORY "${share}/man" DESTINATION share) # launch/manual.cmake
endif()

# What has been installed is listed in the prefix, for its removal, relative to it; a package manager has a list of its own,
# and a package's folders are for everybody, whatever the umask of who makes it. CMake's list in the build tree, which every
# installation from it replaces, is not written.
install(CODE [[
  set(root "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
  if(root MATCHES "/_CPack_Packages/")
    file(GLOB_RECURSE entries LIST_DIRECTORIES true "${root}/*")
    foreach(entry "${root}" ${entries})
      if(IS_DIRECTORY "${entry}")
        file(CHMOD "${entry}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
      endif()
    endforeach()
  else()
    string(REPLACE "${CMAKE_INSTALL_PREFIX}/" "" installed "${CMAKE_INSTALL_MANIFEST_FILES}")
    string(REPLACE ";" "\n" installed "${installed}")
    file(WRITE "${root}/share/trireme/installed.txt" "${installed}\nshare/trireme/installed.txt\n")
  endif()
  return()]])

set(CPACK_GENERATOR DEB TGZ)
set(CPACK_PACKAGE_VENDOR "The Trireme authors")
set(CPACK_PACKAGE_CONTACT "The Trireme authors <trireme@localhost>" CACHE STRING "Maintainer of the .deb")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Distributed data-parallel training of neural networks")
set(CPACK_PACKAGE_DESCRIPTION "One program reads a configuration and trains a neural network on any number of
ranks, on CPUs or NVIDIA GPUs, started by mpirun or srun.")
set(CPACK_STRIP_FILES ON)
# The version is known when the program has been built. The archive brings no libraries: its name tells whose it needs.
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
