# Tests of the CUDA back end that need no GPU: the .cu files are compiled by the host's C++ compiler and run by the execution
# layer in tests/cuda/exec; nvcc, where there is one, compiles them for real. Included by tests/CMakeLists.txt. What is
# missing is said at configure time, and shows as a skipped test.

include(CheckLanguage)
check_language(CXX)
find_program(SUTURE_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda PATH_SUFFIXES bin)
mark_as_advanced(SUTURE_NVCC)

set(cuda_tests "${CMAKE_CURRENT_SOURCE_DIR}/cuda")
set(cuda_kernels "${PROJECT_SOURCE_DIR}/kernels")

# suture_skipped_test(NAME REASON): a test that only says why it cannot run.
function(suture_skipped_test name reason)
    message(STATUS "Suture: ${name} is left out: ${reason}")
    add_test(NAME ${name} COMMAND "${CMAKE_COMMAND}" -E echo "skipped: ${reason}")
    set_tests_properties(${name} PROPERTIES LABELS cuda SKIP_REGULAR_EXPRESSION "^skipped")
endfunction()

if(NOT CMAKE_CXX_COMPILER)
    foreach(name exec passes solvers nvcc)
        suture_skipped_test(cuda.${name} "no C++ compiler was found")
    endforeach()
    return()
endif()
enable_language(CXX)

add_library(suture_exec STATIC "${cuda_tests}/exec/fiber.cpp" "${cuda_tests}/exec/grid.cpp"
    "${cuda_tests}/exec/runtime.cpp")
target_include_directories(suture_exec PUBLIC "${cuda_tests}/exec" "${cuda_tests}")
target_link_libraries(suture_exec PUBLIC suture_build)
target_compile_features(suture_exec PUBLIC cxx_std_17)
# "#pragma unroll" is nvcc's. GCC fears for arrays of m entries when m could be 0, which no caller allows.
target_compile_options(suture_exec PUBLIC -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# .cu files as C++.
function(suture_cuda_sources)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
endfunction()

# The back end as the execution layer runs it. Contraction is off, as in nvcc's build.
file(GLOB kernel_sources CONFIGURE_DEPENDS "${cuda_kernels}/*.cu")
suture_cuda_sources(${kernel_sources})
add_library(suture_cuda_exec STATIC ${kernel_sources} "${cuda_tests}/twin.cpp")
target_include_directories(suture_cuda_exec PUBLIC "${PROJECT_SOURCE_DIR}")
target_link_libraries(suture_cuda_exec PUBLIC suture_exec suture_static suture::openblas Threads::Threads m)

# suture_cuda_test(NAME SOURCE): tests/cuda/SOURCE, run by the execution layer.
function(suture_cuda_test name source)
    suture_cuda_sources("${cuda_tests}/${source}")
    add_executable(test_cuda_${name} "${cuda_tests}/${source}")
    target_link_libraries(test_cuda_${name} PRIVATE ${ARGN})
    add_test(NAME cuda.${name} COMMAND test_cuda_${name})
    set_tests_properties(cuda.${name} PROPERTIES LABELS cuda TIMEOUT 300)
endfunction()

suture_cuda_test(exec test_exec.cu suture_exec)
suture_cuda_test(passes test_passes.cu suture_cuda_exec)
suture_cuda_test(solvers test_solvers.cu suture_cuda_exec)

if(SUTURE_NVCC)
    add_test(NAME cuda.nvcc COMMAND sh "${cuda_tests}/nvcc.sh" "${SUTURE_NVCC}" "${PROJECT_SOURCE_DIR}"
        "${PROJECT_BINARY_DIR}/nvcc")
    set_tests_properties(cuda.nvcc PROPERTIES LABELS cuda TIMEOUT 900)
else()
    suture_skipped_test(cuda.nvcc "nvcc was not found (looked on the path, in CUDA_PATH, CUDA_HOME and /usr/local/cuda)")
endif()
