# The compiler of the kernels for GPUs, and whether it fits LibTorch. cmake -P runs these functions, too, in tests.

# Compute capabilities from Turing on: T4, A100, A10 and RTX 30, L4 and RTX 40, H100 and H200, B200, RTX 50.
set(FUNICULAR_ALL_CUDA_ARCHITECTURES 75 80 86 89 90 100 120)

# Leaves in NAME those of the architectures that this nvcc compiles for: CUDA 13 knows no Volta, CUDA 12.4 no Blackwell.
function(funicular_known_architectures name nvcc)
  execute_process(COMMAND "${nvcc}" --list-gpu-code OUTPUT_VARIABLE listed COMMAND_ERROR_IS_FATAL ANY)
  set(known "")
  foreach(capability IN LISTS ARGN)
    if(listed MATCHES "sm_${capability}([^0-9]|$)")
      list(APPEND known ${capability})
    endif()
  endforeach()
  set(${name} ${known} PARENT_SCOPE)
endfunction()

# The CUDA version that LibTorch's folder was built with, "13.0", in NAME: a wheel has version.py, an archive build-version.
function(funicular_cuda_of_torch name torch)
  set(version "")
  if(EXISTS "${torch}/version.py")
    file(STRINGS "${torch}/version.py" line REGEX "^cuda")
    string(REGEX MATCH "[0-9]+\\.[0-9]+" version "${line}")
  elseif(EXISTS "${torch}/build-version")
    file(READ "${torch}/build-version" text)
    if(text MATCHES "\\+cu([0-9]+)([0-9])")
      set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    endif()
  endif()
  set(${name} "${version}" PARENT_SCOPE)
endfunction()

# The CUDA version of a compiler, "13.0", in NAME.
function(funicular_cuda_of_nvcc name nvcc)
  execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" found "${text}")
  set(${name} "${CMAKE_MATCH_1}" PARENT_SCOPE)
endfunction()

# Whether two versions have the same major version, or one of them is not known, in NAME.
function(funicular_cuda_fits name own wanted)
  string(REGEX REPLACE "\\..*" "" own "${own}")
  string(REGEX REPLACE "\\..*" "" wanted "${wanted}")
  set(${name} ON PARENT_SCOPE)
  if(wanted AND NOT own EQUAL wanted)
    set(${name} OFF PARENT_SCOPE)
  endif()
endfunction()

# Leaves in NAME the first nvcc that fits LibTorch: of CUDA_HOME, the folders in ARGN, PATH, the toolkit's usual place. If none fits,
# the first that there is.
function(funicular_find_nvcc name torch)
  find_program(in_path nvcc NO_CACHE)
  funicular_cuda_of_torch(wanted "${torch}")
  set(first "")
  list(TRANSFORM ARGN APPEND "/nvcc")
  foreach(nvcc IN ITEMS "$ENV{CUDA_HOME}/bin/nvcc" ${ARGN} "${in_path}" /usr/local/cuda/bin/nvcc)
    if(NOT EXISTS "${nvcc}")
      continue()
    endif()
    if(NOT first)
      set(first "${nvcc}")
    endif()
    funicular_cuda_of_nvcc(own "${nvcc}")
    funicular_cuda_fits(fits "${own}" "${wanted}")
    if(fits)
      set(${name} "${nvcc}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${name} "${first}" PARENT_SCOPE)
endfunction()

# Stops unless nvcc and LibTorch are of the same major version: their runtime libraries have no common version.
function(funicular_require_fitting_nvcc nvcc torch)
  funicular_cuda_of_nvcc(own "${nvcc}")
  funicular_cuda_of_torch(wanted "${torch}")
  funicular_cuda_fits(fits "${own}" "${wanted}")
  if(NOT fits)
    string(REGEX REPLACE "\\..*" "" wanted_major "${wanted}")
    message(FATAL_ERROR "${nvcc} is of CUDA ${own}, and LibTorch in ${torch} is of CUDA ${wanted}; expected nvcc ${wanted_major}. "
                        "Put it first in PATH, or pass -DFUNICULAR_NVCC=FILE")
  endif()
endfunction()
