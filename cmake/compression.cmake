# gzip and zstd files are unpacked by zlib and libzstd, see funicular/base/decompressor.cpp. A build without one of them refuses such
# files with the line that unpacks them. The static libraries go first: a package then needs neither on the machine that runs it.
function(funicular_compression header static name macro program)
  find_path(FUNICULAR_${macro}_INCLUDE ${header})
  find_library(FUNICULAR_${macro}_LIBRARY NAMES ${static} ${name})
  mark_as_advanced(FUNICULAR_${macro}_INCLUDE FUNICULAR_${macro}_LIBRARY)
  if(FUNICULAR_${macro}_INCLUDE AND FUNICULAR_${macro}_LIBRARY)
    target_compile_definitions(funicular_base PRIVATE FUNICULAR_${macro})
    target_include_directories(funicular_base SYSTEM PRIVATE "${FUNICULAR_${macro}_INCLUDE}")
    target_link_libraries(funicular_base INTERFACE "${FUNICULAR_${macro}_LIBRARY}")
  else()
    message(STATUS "No ${header}: files of ${program} are refused")
  endif()
endfunction()

funicular_compression(zlib.h libz.a z ZLIB gzip)
funicular_compression(zstd.h libzstd.a zstd ZSTD zstd)
