# Finds LibTorch in TORCH_DIR (a LibTorch folder or a virtual environment), and the fmt that it bundles.
file(GLOB FUNICULAR_TORCH_CANDIDATES "${TORCH_DIR}" "${TORCH_DIR}/share/cmake/Torch"
     "${TORCH_DIR}/lib/python3*/site-packages/torch")
find_package(Torch CONFIG QUIET PATHS ${FUNICULAR_TORCH_CANDIDATES} NO_DEFAULT_PATH)
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch not found in TORCH_DIR=${TORCH_DIR}. Run ./run setup, or pass -DTORCH_DIR=FOLDER "
                      "(the folder that holds share/cmake/Torch).")
endif()
get_filename_component(FUNICULAR_TORCH_ROOT "${Torch_DIR}/../../.." ABSOLUTE)

# Only fmt of LibTorch's include folder, so that the layers without LibTorch cannot reach anything else in it.
# Debian's own fmt clashes with the one inside LibTorch's headers.
set(FUNICULAR_FMT_INCLUDE "${CMAKE_BINARY_DIR}/fmt_include")
file(MAKE_DIRECTORY "${FUNICULAR_FMT_INCLUDE}")
file(CREATE_LINK "${FUNICULAR_TORCH_ROOT}/include/fmt" "${FUNICULAR_FMT_INCLUDE}/fmt" SYMBOLIC)
