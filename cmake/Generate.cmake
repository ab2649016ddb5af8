# npu_generate(<result variable> <folder> SCRIPT <script> [ARGS ...] [DEPENDS ...]): runs a code generator while
# configuring and lists the .cpp files that it wrote. tools/setup_helpers/generate.py touches only files whose text changed, so
# an unrelated edit of a table recompiles what it changes and nothing else. The build configures anew when an input changes.
function(npu_generate result folder)
  cmake_parse_arguments(ARG "" "SCRIPT" "ARGS;DEPENDS" ${ARGN})
  set(${result} "" PARENT_SCOPE)
  if(NOT EXISTS "${ARG_SCRIPT}")
    message(STATUS "not generated: ${ARG_SCRIPT} is not there")
    return()
  endif()
  set(_driver "${PROJECT_SOURCE_DIR}/tools/setup_helpers/generate.py")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_driver}" "${ARG_SCRIPT}" ${ARG_DEPENDS})
  # torchgen and its packaged native_functions.yaml come from the base tree.
  execute_process(COMMAND "${CMAKE_COMMAND}" -E env "PYTHONPATH=${NPU_BASE_TORCH}/.." "${NPU_PYTHON}" "${_driver}" "${folder}" "${ARG_SCRIPT}" ${ARG_ARGS}
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" RESULT_VARIABLE _status)
  if(NOT _status EQUAL 0)
    message(FATAL_ERROR "${ARG_SCRIPT} failed (see above)")
  endif()
  file(GLOB _sources "${folder}/*.cpp")
  set(${result} "${_sources}" PARENT_SCOPE)
endfunction()
