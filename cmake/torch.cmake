# Finds LibTorch in TORCH_DIR (a LibTorch folder or a virtual environment), else where CMake looks for packages. An installed
# FunicularConfig.cmake includes this file, too.
file(GLOB FUNICULAR_TORCH_CANDIDATES "${TORCH_DIR}" "${TORCH_DIR}/share/cmake/Torch"
     "${TORCH_DIR}/lib/python3*/site-packages/torch")

# Where this project is a folder of another, that one links LibTorch's targets, too.
set(CMAKE_FIND_PACKAGE_TARGETS_GLOBAL ON)

# The CMake files of a CUDA build of LibTorch ask for the whole CUDA toolkit, and stop without. We need nvcc and the
# runtime of it, for kernels of our own, so that the libraries are linked by hand; without nvcc those for the CPU only.
include("${CMAKE_CURRENT_LIST_DIR}/cuda.cmake")
option(FUNICULAR_TORCH_CPU_ONLY "Link only the CPU libraries of LibTorch, without its CMake files" OFF)
set(FUNICULAR_CUDA OFF)
foreach(candidate IN LISTS FUNICULAR_TORCH_CANDIDATES)
  set(by_hand ${FUNICULAR_TORCH_CPU_ONLY})
  if(EXISTS "${candidate}/lib/libtorch_cuda.so")
    set(by_hand ON)
    # Where the set-up puts nvcc if no toolkit fits: beside LibTorch, or in its own environment beside a LibTorch of TORCH_DIR.
    file(GLOB wheels "${candidate}/../nvidia/cu*/bin"
         "${CMAKE_CURRENT_LIST_DIR}/../.deps/python/lib/python3*/site-packages/nvidia/cu*/bin")
    if(NOT FUNICULAR_NVCC)
      funicular_find_nvcc(FUNICULAR_NVCC "${candidate}" ${wheels})
    endif()
    if(NOT FUNICULAR_NVCC)
      message(WARNING "LibTorch in ${candidate} is a CUDA build, and there is no nvcc: the program computes on the CPU only. "
                      "./run setup installs nvcc on a machine with NVIDIA's driver")
    elseif(NOT FUNICULAR_TORCH_CPU_ONLY)
      set(FUNICULAR_CUDA ON)
    endif()
  endif()
  if(by_hand AND EXISTS "${candidate}/lib/libtorch_cpu.so")
    set(Torch_DIR "${candidate}/share/cmake/Torch")
    set(TORCH_LIBRARIES "${candidate}/lib/libtorch.so" "${candidate}/lib/libtorch_cpu.so" "${candidate}/lib/libc10.so")
    set(TORCH_INCLUDE_DIRS "${candidate}/include" "${candidate}/include/torch/csrc/api/include")
    add_compile_definitions(USE_DISTRIBUTED USE_C10D_GLOO)  # as its CMake files do
    set(Torch_FOUND TRUE)
  endif()
endforeach()
if(NOT Torch_FOUND)
  find_package(Torch CONFIG QUIET PATHS ${FUNICULAR_TORCH_CANDIDATES} NO_DEFAULT_PATH)
endif()
if(NOT Torch_FOUND)
  find_package(Torch CONFIG QUIET)
endif()
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch not found in TORCH_DIR=${TORCH_DIR}. In a clone, ./run setup installs it. Else pass -DTORCH_DIR=FOLDER "
                      "(a virtual environment with torch 2.13, or the folder that holds share/cmake/Torch).")
endif()
if(FUNICULAR_CUDA)
  get_filename_component(torch "${Torch_DIR}/../../.." ABSOLUTE)
  funicular_require_fitting_nvcc("${FUNICULAR_NVCC}" "${torch}")
  funicular_known_architectures(known "${FUNICULAR_NVCC}" ${FUNICULAR_ALL_CUDA_ARCHITECTURES})
  set(FUNICULAR_CUDA_ARCHITECTURES "${known}" CACHE STRING "Compute capabilities that kernels are compiled for, ascending")
  get_filename_component(nvcc "${FUNICULAR_NVCC}" REALPATH)
  get_filename_component(toolkit "${nvcc}/../.." ABSOLUTE)
  set(toolkits "${toolkit}" "$ENV{CUDA_HOME}" /usr/local/cuda)
  # Wheels bring it with its number alone. The toolkit of nvcc goes before another one.
  find_library(FUNICULAR_CUDART NAMES cudart libcudart.so.13 libcudart.so.12 NAMES_PER_DIR HINTS ${toolkits} PATH_SUFFIXES lib64 lib REQUIRED)
  find_path(FUNICULAR_CUDA_INCLUDE cuda_runtime_api.h HINTS ${toolkits} PATH_SUFFIXES include REQUIRED)
  list(APPEND TORCH_INCLUDE_DIRS "${FUNICULAR_CUDA_INCLUDE}")
  add_compile_definitions(FUNICULAR_CUDA=1)
  # Nothing of ours calls libtorch_cuda, which registers LibTorch's kernels when it is loaded.
  get_filename_component(cuda_libraries "${Torch_DIR}/../../../lib" ABSOLUTE)
  # What it needs itself (cuBLAS, cuDNN …) it finds when the program starts.
  list(APPEND TORCH_LIBRARIES "-Wl,--allow-shlib-undefined" "${cuda_libraries}/libc10_cuda.so" "-Wl,--no-as-needed"
       "${cuda_libraries}/libtorch_cuda.so" "-Wl,--as-needed" "${FUNICULAR_CUDART}")
endif()
get_filename_component(FUNICULAR_TORCH_ROOT "${Torch_DIR}/../../.." ABSOLUTE)

# LibTorch's libraries hold functions of std::filesystem, and those of a CUDA build cannot remove a folder: they call what they do
# not have. A program finds its functions in the first of its libraries that has them, which is therefore the standard one.
set(FUNICULAR_TORCH_LINK_OPTIONS "SHELL:-Wl,--push-state,--no-as-needed -lstdc++ -Wl,--pop-state")

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
