# One object library a layer (a folder under funicular/), and two libraries of them all: funicular_plain has those that do not
# use LibTorch, so that a program can start without loading it, and funicular the others.

# Of the layers and programs funicular_core compiles the precompiled header, and the others reuse it; programs that only tests
# run have one of their own, see funicular_unoptimised.
set(FUNICULAR_PRECOMPILED_BY funicular_core)
set(FUNICULAR_PRECOMPILED_HEADER precompiled.h)
function(funicular_torch_target target)
  target_link_libraries(${target} PRIVATE ${TORCH_LIBRARIES} ${FUNICULAR_TORCH_OPENMP})
  target_compile_options(${target} PRIVATE -fopenmp)
  target_include_directories(${target} SYSTEM PRIVATE ${TORCH_INCLUDE_DIRS})
  if(target STREQUAL FUNICULAR_PRECOMPILED_BY)
    target_precompile_headers(${target} PRIVATE "${PROJECT_SOURCE_DIR}/cmake/${FUNICULAR_PRECOMPILED_HEADER}")
  else()
    target_precompile_headers(${target} REUSE_FROM ${FUNICULAR_PRECOMPILED_BY})
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # the precompiled header is of -fPIC, and CMake gives programs -fPIE
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
endfunction()

# Only fmt of LibTorch's include folder, so that the layers without LibTorch cannot reach anything else in it.
# Debian's own fmt clashes with the one inside LibTorch's headers.
set(FUNICULAR_FMT_INCLUDE "${PROJECT_BINARY_DIR}/fmt_include")
file(MAKE_DIRECTORY "${FUNICULAR_FMT_INCLUDE}")
file(CREATE_LINK "${FUNICULAR_TORCH_ROOT}/include/fmt" "${FUNICULAR_FMT_INCLUDE}/fmt" SYMBOLIC)

function(funicular_plain_settings target)
  target_include_directories(${target} PUBLIC "${PROJECT_SOURCE_DIR}" SYSTEM PUBLIC "${FUNICULAR_FMT_INCLUDE}")
  target_compile_definitions(${target} PUBLIC FMT_HEADER_ONLY=1)
endfunction()

# For the folders of programs that only tests run: these take longer to compile than to run. test_core compiles their
# precompiled header, which GCC refuses to a source without GoogleTest's macro.
macro(funicular_unoptimised)
  add_compile_options(-O0)
  add_compile_definitions(GTEST_HAS_PTHREAD=1)
  set(FUNICULAR_PRECOMPILED_BY test_core)
  set(FUNICULAR_PRECOMPILED_HEADER precompiled_tests.h)
endmacro()

# For programs and for layers that do not loop over each byte of a text (HOT): -O1 takes 60 % of -O3's time to compile. Kernels
# have -O3. A precompiled header of -O1 breaks GCC 12 in a source of -O2, so that HOT is for layers without LibTorch.
function(funicular_cold target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

function(funicular_layer name)
  file(GLOB sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/funicular/${name}/*.cpp"
       "${PROJECT_SOURCE_DIR}/funicular/${name}/device/*.cpp" "${PROJECT_SOURCE_DIR}/funicular/${name}/family/*.cpp"
       "${PROJECT_SOURCE_DIR}/funicular/${name}/holding/*.cpp")
  # Kernels are compiled once for each instruction set, see funicular/base/isa.h.
  file(GLOB kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/funicular/${name}/kernels/*.cpp")
  if(NOT sources)
    set(sources "${PROJECT_SOURCE_DIR}/cmake/empty.cpp")
  endif()
  set(target funicular_${name})
  add_library(${target} OBJECT ${sources})
  funicular_plain_settings(${target})
  if("TORCH" IN_LIST ARGN)
    funicular_torch_target(${target})
  endif()
  if(NOT "HOT" IN_LIST ARGN)
    funicular_cold(${target})
  endif()
  file(GLOB byte_kernels CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/funicular/${name}/kernels/bytes/*.cpp")
  if(byte_kernels)
    funicular_byte_kernels(${target} "${byte_kernels}")
  endif()
  if(kernels)
    funicular_kernels(${target} "${kernels}" ${ARGN})
  endif()
  if(FUNICULAR_CUDA)
    set(cuda_kernels "${PROJECT_SOURCE_DIR}/funicular/${name}/device/cuda.cu")
    if(EXISTS "${cuda_kernels}")
      funicular_cuda_kernels(${name} "${cuda_kernels}")
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY FUNICULAR_OBJECTS_${target} ${target})
  if("TORCH" IN_LIST ARGN)
    set_property(GLOBAL APPEND PROPERTY FUNICULAR_TORCH_LAYERS ${name})
  else()
    set_property(GLOBAL APPEND PROPERTY FUNICULAR_PLAIN_LAYERS ${name})
  endif()
endfunction()

# Links one layer's objects, its kernels included; objects do not travel through other object libraries.
function(funicular_link_layer target layer)
  get_property(objects GLOBAL PROPERTY FUNICULAR_OBJECTS_funicular_${layer})
  target_link_libraries(${target} PRIVATE ${objects})
endfunction()

# Kernel files, compiled into the namespace of an instruction set; its flags follow.
function(funicular_kernel_object target isa files)
  add_library(${target}_${isa} OBJECT ${files})
  funicular_plain_settings(${target}_${isa})
  target_compile_definitions(${target}_${isa} PRIVATE FUNICULAR_ISA=${isa} FUNICULAR_ISA_${isa}=1)
  # Contraction differs between instruction sets, but within one machine each result is a function of its input.
  if(NOT FUNICULAR_SANITIZE)  # with sanitizers the optimiser would take most of an hour
    target_compile_options(${target}_${isa} PRIVATE -O3)
  endif()
  target_compile_options(${target}_${isa} PRIVATE -falign-functions=64 -fno-math-errno -fno-trapping-math ${ARGN})
  # GCC 12's own AVX-512 headers set it off.
  target_compile_options(${target}_${isa} PRIVATE -Wno-maybe-uninitialized)
  set_property(GLOBAL APPEND PROPERTY FUNICULAR_OBJECTS_${target} ${target}_${isa})
endfunction()

# Products of bytes for processors with VNNI, beside AVX2 and AVX-512 (see ByteProducts in funicular/base/isa.h).
function(funicular_byte_kernels target files)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    return()
  endif()
  set(avx2 -mavx2 -mfma -mf16c -mbmi2)
  funicular_kernel_object(${target} avx2_vnni "${files}" ${avx2})
  funicular_kernel_object(${target} avx2_vnni_evex "${files}" ${avx2})
  funicular_kernel_object(${target} avx512_vnni "${files}" -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx512vnni ${avx2}
                          -mprefer-vector-width=512)
endfunction()

# Which instruction sets a kernel file is compiled for: "all", or "native", those that funicular/base/isa.cpp may choose on this
# processor. A native build is ready minutes sooner (./run quickstart), and refuses to run elsewhere.
set(FUNICULAR_KERNELS all CACHE STRING "Instruction sets that kernels are compiled for: all or native")
set_property(CACHE FUNICULAR_KERNELS PROPERTY STRINGS all native)

# Leaves in the list of this name, in ascending order, those that this processor may use.
function(funicular_native_isas name)
  execute_process(COMMAND "${CMAKE_CXX_COMPILER}" -march=native -dM -E -x c++ /dev/null OUTPUT_VARIABLE macros
                  COMMAND_ERROR_IS_FATAL ANY)
  set(macro_avx2 __AVX2__)
  set(macro_avx512 __AVX512BW__)
  set(macro_avx512_bf16 __AVX512BF16__)
  set(macro_amx __AMX_BF16__)
  set(native baseline)
  foreach(isa IN LISTS ${name})
    if(NOT isa STREQUAL "baseline" AND macros MATCHES "#define ${macro_${isa}} ")
      # Intel's processors with AVX512-FP16 have slow products of bf16, and a system may keep AMX from a process.
      if(NOT macros MATCHES "#define __AVX512FP16__ " OR isa STREQUAL "avx512")
        set(native "")
      endif()
      list(APPEND native ${isa})
    endif()
  endforeach()
  set(${name} ${native} PARENT_SCOPE)
endfunction()

# Compiles each kernel file three times, into the namespaces baseline, avx2 and avx512 (macro FUNICULAR_ISA), and with
# BF16_PRODUCTS twice more, into avx512_bf16 and amx.
function(funicular_kernels target files)
  set(flags_baseline "")
  set(flags_avx2 -mavx2 -mfma -mf16c -mbmi2)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mbmi2 -mprefer-vector-width=512)
  set(flags_avx512_bf16 ${flags_avx512} -mavx512bf16 -mavx512vnni)
  set(flags_amx ${flags_avx512_bf16} -mamx-tile -mamx-bf16 -mamx-int8)
  set(isas baseline)
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
    list(APPEND isas avx2 avx512)
    if("BF16_PRODUCTS" IN_LIST ARGN)
      list(APPEND isas avx512_bf16 amx)
    endif()
    target_compile_definitions(${target} PRIVATE FUNICULAR_X86_KERNELS=1)
  endif()
  if(FUNICULAR_KERNELS STREQUAL "native")
    funicular_native_isas(isas)
  endif()
  foreach(isa IN LISTS isas)
    funicular_kernel_object(${target} ${isa} "${files}" ${flags_${isa}})
  endforeach()
endfunction()

# Kernels for GPUs. They include no header of LibTorch, so that nvcc alone compiles them, without CMake's knowledge of it:
# that of Debian 12 knows no nvcc that takes C++20.
function(funicular_cuda_kernels layer file)
  set(object "${PROJECT_BINARY_DIR}/funicular_${layer}_cuda.o")
  set(architectures "")
  foreach(capability IN LISTS FUNICULAR_CUDA_ARCHITECTURES)
    list(APPEND architectures -gencode "arch=compute_${capability},code=sm_${capability}")
  endforeach()
  list(GET FUNICULAR_CUDA_ARCHITECTURES -1 newest)  # newer cards compile it for themselves
  list(APPEND architectures -gencode "arch=compute_${newest},code=compute_${newest}")
  add_custom_command(OUTPUT "${object}" DEPENDS "${file}" DEPFILE "${object}.d" VERBATIM
    COMMAND "${FUNICULAR_NVCC}" -ccbin "${CMAKE_CXX_COMPILER}" -std=c++20 -O3 --threads 2 --expt-relaxed-constexpr ${architectures} -Xcompiler=-fPIC
            "-I${PROJECT_SOURCE_DIR}" -MD -MF "${object}.d" -c "${file}" -o "${object}")
  add_custom_target(funicular_${layer}_cuda DEPENDS "${object}")
  set_property(GLOBAL APPEND PROPERTY FUNICULAR_CUDA_OBJECTS "${object}")
  set_property(GLOBAL APPEND PROPERTY FUNICULAR_CUDA_TARGETS funicular_${layer}_cuda)
endfunction()

# A shared library of layers. What is not of the namespace funicular (fmt, JSON, instantiations of the standard library) stays
# inside.
function(funicular_library name)
  add_library(${name} SHARED "${PROJECT_SOURCE_DIR}/cmake/empty.cpp")
  foreach(layer IN LISTS ARGN)
    funicular_link_layer(${name} ${layer})
  endforeach()
  funicular_plain_settings(${name})
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC Threads::Threads)
  funicular_exports(${name})
  set_target_properties(${name} PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION}
                        INSTALL_RPATH "$ORIGIN")
  add_library(Funicular::${name} ALIAS ${name})
endfunction()

function(funicular_exports target)
  set(exports "${PROJECT_SOURCE_DIR}/cmake/exports.map")
  target_link_options(${target} PRIVATE "LINKER:--version-script=${exports}")
  set_target_properties(${target} PROPERTIES LINK_DEPENDS "${exports}")
endfunction()

function(funicular_libraries)
  get_property(plain GLOBAL PROPERTY FUNICULAR_PLAIN_LAYERS)
  get_property(torch GLOBAL PROPERTY FUNICULAR_TORCH_LAYERS)
  funicular_library(funicular_plain ${plain})
  # Comes last among what the library needs, and so behind libgomp: see the file.
  add_library(funicular_waits SHARED "${PROJECT_SOURCE_DIR}/cmake/brief_waits.cpp")
  funicular_library(funicular ${torch})
  set_target_properties(funicular PROPERTIES BUILD_RPATH "${FUNICULAR_TORCH_ROOT}/lib"
                        INSTALL_RPATH "$ORIGIN;${FUNICULAR_TORCH_ROOT}/lib")
  get_property(cuda_objects GLOBAL PROPERTY FUNICULAR_CUDA_OBJECTS)
  get_property(cuda_targets GLOBAL PROPERTY FUNICULAR_CUDA_TARGETS)
  if(cuda_objects)
    target_link_libraries(funicular PRIVATE ${cuda_objects})
    add_dependencies(funicular ${cuda_targets})
  endif()
  target_include_directories(funicular SYSTEM PUBLIC ${TORCH_INCLUDE_DIRS})
  target_link_libraries(funicular PUBLIC funicular_plain ${TORCH_LIBRARIES} ${FUNICULAR_TORCH_OPENMP})
  target_link_libraries(funicular PRIVATE -Wl,--no-as-needed funicular_waits)
  target_link_options(funicular INTERFACE ${FUNICULAR_TORCH_LINK_OPTIONS})
endfunction()
