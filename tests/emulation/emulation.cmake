# A GPU made of the CPU, see README.md: our kernels are compiled as plain C++, and runtime.cc has the functions of the CUDA runtime.
# Its headers come before those of the same name in the tree.
include_directories(${CMAKE_CURRENT_LIST_DIR})
set(TRIREME_EMULATION_DIR ${CMAKE_CURRENT_LIST_DIR})

find_package(Boost REQUIRED COMPONENTS context)

# Shared, so that core/cuda/library.cc finds the functions in it.
add_library(trireme_emulation SHARED
  ${CMAKE_CURRENT_LIST_DIR}/gpu.cc ${CMAKE_CURRENT_LIST_DIR}/memory.cc ${CMAKE_CURRENT_LIST_DIR}/nccl.cc ${CMAKE_CURRENT_LIST_DIR}/runtime.cc
  ${CMAKE_CURRENT_LIST_DIR}/threads.cc)
target_include_directories(trireme_emulation PUBLIC ${CMAKE_CURRENT_LIST_DIR})
target_include_directories(trireme_emulation SYSTEM PUBLIC ${CUDAToolkit_INCLUDE_DIRS} ${NCCL_INCLUDE_DIR})
target_compile_options(trireme_emulation PRIVATE -Wall -Wextra -Wshadow ${werror})
target_link_libraries(trireme_emulation PUBLIC Threads::Threads fmt::fmt PRIVATE Boost::context MPI::MPI_CXX)
# All kernels pass through it, thread by thread.
set_source_files_properties(${CMAKE_CURRENT_LIST_DIR}/threads.cc PROPERTIES COMPILE_OPTIONS -O2)

# Rewrites a room's list of sources: tests/emulation/ROOM/FILE takes the place of ROOM/FILE, and .cu files become C++.
function(trireme_emulate list)
  get_filename_component(room ${CMAKE_CURRENT_SOURCE_DIR} NAME)
  set(emulated "")
  foreach(source ${${list}})
    if(EXISTS ${TRIREME_EMULATION_DIR}/${room}/${source})
      set(source ${TRIREME_EMULATION_DIR}/${room}/${source})
    elseif(source MATCHES "\\.cu$")
      set_source_files_properties(${source} PROPERTIES
        LANGUAGE CXX
        COMPILE_OPTIONS "-include;${TRIREME_EMULATION_DIR}/kernel.h;-Wno-unknown-pragmas;-Wno-maybe-uninitialized;-O1"
        SKIP_PRECOMPILE_HEADERS ON
        OBJECT_DEPENDS ${TRIREME_EMULATION_DIR}/kernel.h)
    endif()
    list(APPEND emulated ${source})
  endforeach()
  set(${list} ${emulated} PARENT_SCOPE)
endfunction()
