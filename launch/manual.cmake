# Generates the manual pages of the program and of the installed scripts after each build of the program, so that installing
# writes nothing into the build tree. Not with sanitizers: they report errors in libraries, and such builds are not installed.
if(NOT TRIREME_SANITIZE)
  set(manual "${CMAKE_BINARY_DIR}/share/man/man1")
  add_custom_command(TARGET trireme POST_BUILD
    COMMAND ${CMAKE_COMMAND} -E rm -rf "${manual}"
    COMMAND ${CMAKE_COMMAND} -E make_directory "${manual}"
    COMMAND $<TARGET_FILE:trireme> help --man "${manual}" --scripts launch/get-data launch/supervise
    WORKING_DIRECTORY "${CMAKE_SOURCE_DIR}"
    VERBATIM)
endif()
