# Decides whether the cuda/ and nccl/ folders are built, and how. All CUDA libraries except the CUDA runtime are loaded at run
# time, so building needs only their headers.
if(TRIREME_CUDA STREQUAL "AUTO" OR TRIREME_CUDA STREQUAL "ON")
  find_program(TRIREME_NVCC nvcc HINTS $ENV{CUDACXX} $ENV{CUDA_HOME}/bin $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
endif()
if(TRIREME_NVCC)
  get_filename_component(CUDAToolkit_ROOT ${TRIREME_NVCC}/../.. REALPATH)
  find_package(CUDAToolkit QUIET)
  set(hints ${CUDAToolkit_INCLUDE_DIRS} ${CMAKE_SOURCE_DIR}/build/third_party/include)
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${hints})
  find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h HINTS ${hints})
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${hints})
endif()

set(missing "")
foreach(needed TRIREME_NVCC CUDAToolkit_INCLUDE_DIRS CUDNN_INCLUDE_DIR CUDNN_FRONTEND_INCLUDE_DIR NCCL_INCLUDE_DIR)
  if(NOT ${needed})
    list(APPEND missing ${needed})
  endif()
endforeach()
if(TRIREME_CUDA STREQUAL "OFF" OR (TRIREME_CUDA STREQUAL "AUTO" AND missing))
  set(TRIREME_WITH_CUDA OFF)
  message(STATUS "Without CUDA: ${TRIREME_CUDA} ${missing}")
elseif(missing)
  message(FATAL_ERROR "TRIREME_CUDA=${TRIREME_CUDA}, but not found: ${missing}")
else()
  set(TRIREME_WITH_CUDA ON)
endif()

# The options and links of the cuda/ and nccl/ folders.
add_library(trireme_cuda INTERFACE)
if(TRIREME_WITH_CUDA)
  target_include_directories(trireme_cuda SYSTEM INTERFACE
    ${CUDAToolkit_INCLUDE_DIRS} ${CUDNN_INCLUDE_DIR} ${CUDNN_FRONTEND_INCLUDE_DIR} ${NCCL_INCLUDE_DIR})
  set(CMAKE_CUDA_COMPILER ${TRIREME_NVCC})
  if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
    # Compiled to PTX once and assembled for A100, H100 and H200. On newer GPUs, the driver assembles the PTX at the first run.
    set(CMAKE_CUDA_ARCHITECTURES OFF)
    set(architectures --generate-code=arch=compute_80,code=[compute_80,sm_80,sm_90])
  endif()
  if(CCACHE)
    set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
  endif()
  enable_language(CUDA)
  string(REPLACE "-O3" "-O1" CMAKE_CUDA_FLAGS_RELEASE "${CMAKE_CUDA_FLAGS_RELEASE}") # affects host code, which only launches kernels
  if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION) # not set by CMake before 3.26
    set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  endif()
  target_compile_options(trireme_cuda INTERFACE
    $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr ${architectures} ${nvcc_werror}>)
  target_link_libraries(trireme_cuda INTERFACE CUDA::cudart_static)
endif()

# trireme_cuda_part(LIBRARY STUB FILE... SOURCES FILE... LINKS TARGET...): adds the part of trireme_LIBRARY that depends on CUDA
# as a separate library, which targets that link trireme_LIBRARY link too. Without CUDA it is built from the STUB files. Targets
# with the property EMULATED link the library that tests/emulation builds from the same sources instead.
function(trireme_cuda_part library)
  cmake_parse_arguments(PART "" "" "STUB;SOURCES;LINKS" ${ARGN})
  if(TRIREME_WITH_CUDA)
    set(sources ${PART_SOURCES})
  else()
    set(sources ${PART_STUB})
  endif()
  add_library(trireme_${library}_cuda STATIC ${sources})
  target_link_libraries(trireme_${library}_cuda PRIVATE trireme_${library} trireme_cuda trireme_options ${PART_LINKS})
  target_precompile_headers(trireme_${library}_cuda REUSE_FROM trireme_${library})
  trireme_compile_together(trireme_${library}_cuda)
  set_target_properties(trireme_${library}_cuda PROPERTIES CUDA_PART "${PART_SOURCES}" CUDA_PART_LINKS "${PART_LINKS}")
  target_link_libraries(trireme_${library} INTERFACE
    $<IF:$<BOOL:$<TARGET_PROPERTY:EMULATED>>,trireme_${library}_emulated,trireme_${library}_cuda>)
endfunction()
