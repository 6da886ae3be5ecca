# cmake --install: the library, its headers, the program, and what find_package(Funicular) reads.
if(FUNICULAR_KERNELS STREQUAL "native")
  install(CODE "message(FATAL_ERROR \"This build has kernels for one kind of processor only; run ./run build first\")")
endif()
include(CMakePackageConfigHelpers)
set(FUNICULAR_PACKAGE "${CMAKE_INSTALL_LIBDIR}/cmake/Funicular")

install(TARGETS funicular funicular_plain funicular_waits LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}")
if(FUNICULAR_PROGRAM)
  install(TARGETS funicular_cli funicular_commands RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
          LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" NAMELINK_SKIP)
endif()
# Kernels, and what calls them, are compiled into the library, and the program's own sources are no part of it.
install(DIRECTORY "${PROJECT_SOURCE_DIR}/funicular" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" FILES_MATCHING PATTERN "*.h"
        PATTERN "funicular/cli" EXCLUDE PATTERN "kernels" EXCLUDE PATTERN "device" EXCLUDE PATTERN "gloo_declarations" EXCLUDE
        PATTERN "element_optimizer.h" EXCLUDE
        PATTERN "layer_optimizer.h" EXCLUDE)

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/FunicularConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/FunicularConfig.cmake" INSTALL_DESTINATION "${FUNICULAR_PACKAGE}"
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
# Before 1.0 a minor version may change what users compile against.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/FunicularConfigVersion.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/FunicularConfig.cmake" "${PROJECT_BINARY_DIR}/FunicularConfigVersion.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/torch.cmake" "${PROJECT_SOURCE_DIR}/cmake/cuda.cmake"
        DESTINATION "${FUNICULAR_PACKAGE}")
