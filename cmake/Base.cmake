# Imported targets for the base distribution's libraries and headers, all of them SYSTEM.
message(STATUS "base tree: ${NPU_BASE_TORCH}")

add_library(base_headers INTERFACE)
target_include_directories(base_headers SYSTEM INTERFACE
  "${NPU_BASE_TORCH}/include" "${NPU_BASE_TORCH}/include/torch/csrc/api/include")

foreach(_lib c10 torch_cpu torch_python)
  add_library(base_${_lib} SHARED IMPORTED)
  set_target_properties(base_${_lib} PROPERTIES IMPORTED_LOCATION "${NPU_BASE_TORCH}/lib/lib${_lib}.so")
  target_link_libraries(base_${_lib} INTERFACE base_headers)
endforeach()
# The base wheel carries its own libgomp (beside torch on some machines); naming the file keeps the system's out of the link.
file(GLOB _gomp "${NPU_BASE_TORCH}/lib/libgomp*.so.1*" "${NPU_BASE_TORCH}/../torch.libs/libgomp*.so.1*")
if(NOT _gomp)
  message(FATAL_ERROR "the base tree has no libgomp: ${NPU_BASE_TORCH}/lib")
endif()
list(GET _gomp 0 _gomp)
add_library(base_gomp SHARED IMPORTED)
set_target_properties(base_gomp PROPERTIES IMPORTED_LOCATION "${_gomp}")
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  # clang's OpenMP calls a library of its own, which is a second set of threads beside upstream's.
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -print-file-name=libomp.so OUTPUT_VARIABLE _omp OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT EXISTS "${_omp}")
    message(FATAL_ERROR "clang's OpenMP is missing: apt install libomp-dev of its version, or take g++")
  endif()
  target_link_libraries(base_gomp INTERFACE "${_omp}")
endif()
add_link_options("-Wl,-rpath-link,${NPU_BASE_TORCH}/lib")
# What a CUDA build of the base needs in turn; only tools/cross uses one.
file(GLOB _more "${NPU_BASE_TORCH}/../nvidia/*/lib")
foreach(_folder ${_more})
  add_link_options("-Wl,-rpath-link,${_folder}")
endforeach()

execute_process(
  COMMAND "${NPU_PYTHON}" -c "import sysconfig; print(sysconfig.get_path('include')); print(sysconfig.get_config_var('EXT_SUFFIX'))"
  OUTPUT_VARIABLE _python_facts OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" _python_facts "${_python_facts}")
list(GET _python_facts 0 NPU_PYTHON_INCLUDE)
list(GET _python_facts 1 NPU_PYTHON_SUFFIX)
if(CMAKE_CROSSCOMPILING)
  # The headers are this host's Python's, of the same version: tools/cross checks that the sizes in pyconfig.h agree.
  string(REPLACE "-${CMAKE_HOST_SYSTEM_PROCESSOR}-" "-${CMAKE_SYSTEM_PROCESSOR}-" NPU_PYTHON_SUFFIX "${NPU_PYTHON_SUFFIX}")
endif()
if(NOT EXISTS "${NPU_PYTHON_INCLUDE}/Python.h")
  message(FATAL_ERROR "no Python.h in ${NPU_PYTHON_INCLUDE}: install Python's headers (apt install python3-dev, yum install python3-devel, for that version)")
endif()
