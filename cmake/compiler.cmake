# Settings that every target of the project shares.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# GCC 12 reports false overlaps in std::string concatenation (GCC bug 105651). A precompiled header that it refuses costs seconds a
# source, in silence but for a warning.
add_compile_options(-Wall -Wextra "$<$<CXX_COMPILER_ID:GNU>:-Wno-restrict;-Werror=invalid-pch>")
# GCC collects its garbage only above 1 GB: a source with LibTorch's headers compiles in a tenth less time, for 0.15 GB more.
add_compile_options("$<$<CXX_COMPILER_ID:GNU>:--param=ggc-min-heapsize=1000000>")
# Messages name sources relative to the clone: what is installed does not tell where it was built.
add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=>")
if(FUNICULAR_ASSERTIONS)
  string(REPLACE "-DNDEBUG" "" CMAKE_CXX_FLAGS_RELWITHDEBINFO "${CMAKE_CXX_FLAGS_RELWITHDEBINFO}")
endif()
if(FUNICULAR_SANITIZE)
  add_compile_options(-fsanitize=${FUNICULAR_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=undefined)
  add_link_options(-fsanitize=${FUNICULAR_SANITIZE})
  # toml++ 3.3 calls a place unreachable that any letter beyond ASCII in a key reaches. It answers right all the same: no blank.
  if(FUNICULAR_SANITIZE MATCHES "undefined")
    set_source_files_properties("${PROJECT_SOURCE_DIR}/funicular/base/toml_file.cpp" PROPERTIES COMPILE_OPTIONS -fno-sanitize=unreachable)
  endif()
  # GCC's own library warns under them: of values in <regex> that are set, and of fences in <atomic> that tsan does not model.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_compile_options(-Wno-maybe-uninitialized)
    if(FUNICULAR_SANITIZE MATCHES "thread")
      add_compile_options(-Wno-tsan)
    endif()
  endif()
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # PCH needs the two sloppiness settings; without them ccache never hits. With CCACHE_DEPEND the compiler's own list of
  # headers is the key: a miss saves a run of the preprocessor, 2 s a source.
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1
      CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} ${CCACHE_PROGRAM})
endif()
find_package(Threads REQUIRED)
