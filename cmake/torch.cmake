# Finds LibTorch in TORCH_DIR (a LibTorch folder or a virtual environment), and the fmt that it bundles.
file(GLOB FUNICULAR_TORCH_CANDIDATES "${TORCH_DIR}" "${TORCH_DIR}/share/cmake/Torch"
     "${TORCH_DIR}/lib/python3*/site-packages/torch")

# A CUDA build of LibTorch asks for the CUDA toolkit in its own CMake files, and stops without. Where there is none, its
# CPU libraries are linked by hand; everything runs on the CPU then.
option(FUNICULAR_TORCH_CPU_ONLY "Link only the CPU libraries of LibTorch, without its CMake files" OFF)
foreach(candidate IN LISTS FUNICULAR_TORCH_CANDIDATES)
  if(EXISTS "${candidate}/lib/libtorch_cuda.so")
    find_program(FUNICULAR_NVCC nvcc PATHS /usr/local/cuda/bin)
    if(NOT FUNICULAR_NVCC)
      message(STATUS "LibTorch in ${candidate} is a CUDA build, and there is no CUDA toolkit: building for the CPU only")
      set(FUNICULAR_TORCH_CPU_ONLY ON)
    endif()
  endif()
  if(FUNICULAR_TORCH_CPU_ONLY AND EXISTS "${candidate}/lib/libtorch_cpu.so")
    set(Torch_DIR "${candidate}/share/cmake/Torch")
    set(TORCH_LIBRARIES "${candidate}/lib/libtorch.so" "${candidate}/lib/libtorch_cpu.so" "${candidate}/lib/libc10.so")
    set(TORCH_INCLUDE_DIRS "${candidate}/include" "${candidate}/include/torch/csrc/api/include")
    set(Torch_FOUND TRUE)
  endif()
endforeach()
if(NOT Torch_FOUND)
  find_package(Torch CONFIG QUIET PATHS ${FUNICULAR_TORCH_CANDIDATES} NO_DEFAULT_PATH)
endif()
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch not found in TORCH_DIR=${TORCH_DIR}. Run ./run setup, or pass -DTORCH_DIR=FOLDER "
                      "(the folder that holds share/cmake/Torch).")
endif()
get_filename_component(FUNICULAR_TORCH_ROOT "${Torch_DIR}/../../.." ABSOLUTE)

# at::parallel_for lies in headers and runs on one thread where OpenMP is off. The program must share LibTorch's own
# runtime: two of them would keep two teams of threads.
file(GLOB FUNICULAR_TORCH_OPENMP "${FUNICULAR_TORCH_ROOT}/lib/libgomp*.so*" "${FUNICULAR_TORCH_ROOT}/lib/libiomp5.so"
     "${FUNICULAR_TORCH_ROOT}/lib/libomp*.so")
list(LENGTH FUNICULAR_TORCH_OPENMP found)
if(found EQUAL 0)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  set(FUNICULAR_TORCH_OPENMP OpenMP::OpenMP_CXX)
else()
  list(GET FUNICULAR_TORCH_OPENMP 0 FUNICULAR_TORCH_OPENMP)
endif()

# Only fmt of LibTorch's include folder, so that the layers without LibTorch cannot reach anything else in it.
# Debian's own fmt clashes with the one inside LibTorch's headers.
set(FUNICULAR_FMT_INCLUDE "${CMAKE_BINARY_DIR}/fmt_include")
file(MAKE_DIRECTORY "${FUNICULAR_FMT_INCLUDE}")
file(CREATE_LINK "${FUNICULAR_TORCH_ROOT}/include/fmt" "${FUNICULAR_FMT_INCLUDE}/fmt" SYMBOLIC)
