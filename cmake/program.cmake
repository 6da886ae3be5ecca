# The program, and the library of those of its commands that need LibTorch (funicular/cli/commands_library.h). The program itself
# is compiled without LibTorch's headers and linked without its libraries: these are its sources, all others of cli/ the library's.
set(program main arguments arguments_help option_set chain chain_template command_list commands_library completion config_file file_style foreign_options help_pages
            launch manual option option_effects option_reference output_paths plan report required_options tokenize training_arguments verify_store version
            vocabulary vocabulary_training word_options)
list(TRANSFORM program PREPEND "${PROJECT_SOURCE_DIR}/funicular/cli/")
list(TRANSFORM program APPEND ".cpp")
file(GLOB commands CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/funicular/cli/*.cpp")
list(REMOVE_ITEM commands ${program})

add_executable(funicular_cli ${program})
target_link_libraries(funicular_cli PRIVATE funicular_plain ${CMAKE_DL_LIBS})
funicular_cold(funicular_cli)
# Nothing but the macros of its version.
set_source_files_properties("${PROJECT_SOURCE_DIR}/funicular/cli/version.cpp" PROPERTIES INCLUDE_DIRECTORIES "${TORCH_INCLUDE_DIRS}")
# The library uses the program's names.
set(exports "${PROJECT_SOURCE_DIR}/cmake/program_exports.list")
target_link_options(funicular_cli PRIVATE "LINKER:--dynamic-list=${exports}")
set_target_properties(funicular_cli PROPERTIES OUTPUT_NAME funicular LINK_DEPENDS "${exports}"
                      INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")

add_library(funicular_commands SHARED ${commands})
funicular_plain_settings(funicular_commands)
funicular_torch_target(funicular_commands)
funicular_cold(funicular_commands)
target_link_libraries(funicular_commands PRIVATE funicular)
funicular_exports(funicular_commands)
set_target_properties(funicular_commands PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION}
                      INSTALL_RPATH "$ORIGIN;${FUNICULAR_TORCH_ROOT}/lib")
add_dependencies(funicular_cli funicular_commands)
