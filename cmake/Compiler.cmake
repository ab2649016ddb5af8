# Flags of all our objects. The precompiled header is shared by the targets, so the flags must be one set: a
# precompiled header is silently ignored when, for instance, the -O level differs from its own.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 11)
  message(FATAL_ERROR "g++ ${CMAKE_CXX_COMPILER_VERSION} is too old: upstream's headers need C++20, g++ 11 or later (apt install g++, yum install gcc-c++)")
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 16)
  message(FATAL_ERROR "clang ${CMAKE_CXX_COMPILER_VERSION} is too old: C++20's library needs clang 16 or later, or g++ 11 or later")
endif()

# Build types are not used: our two variants are spelled out.
set(CMAKE_BUILD_TYPE "" CACHE STRING "" FORCE)
if(NPU_SANITIZE)
  # Every report ends the process. vptr checks would need the base libraries' type information.
  add_compile_options(-O1 -g1 -fno-omit-frame-pointer -fsanitize=${NPU_SANITIZE} -fno-sanitize=vptr
    -fno-sanitize-recover=all -D_GLIBCXX_ASSERTIONS)
  add_link_options(-fsanitize=${NPU_SANITIZE})
elseif(NPU_DEBUG)
  add_compile_options(-O0 -g -D_GLIBCXX_ASSERTIONS)
else()
  add_compile_options(-O2 -DNDEBUG)
endif()
add_compile_options(-Wall -Wextra -Werror -fopenmp -fno-math-errno -fvisibility-inlines-hidden)
# Upstream's own exceptions: g++ misjudges SmallVector and std::optional when they are inlined from its headers.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-maybe-uninitialized -Wno-stringop-overflow)
endif()
add_compile_options(-Wno-psabi)
# The loader finds libgomp in the base tree: a second OpenMP runtime would double the threads, so -fopenmp is not a link flag.
add_link_options(-Wl,-O1)

set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_BUILD_RPATH_USE_ORIGIN ON)
