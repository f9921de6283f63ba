# Tests of the CUDA back end that need no GPU: the files of kernels/ are compiled by the host's C++ compiler into a
# libsuture_cuda that is run by the execution layer in tests/cuda/exec; libsuture opens it as it opens the real one. nvcc, where
# there is one, compiles them for real. Included by tests/CMakeLists.txt. What is missing is said at configure time, and shows
# as a skipped test.

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
    foreach(name exec passes context agreement solvers golden property pinn pinn_run nvcc)
        suture_skipped_test(cuda.${name} "no C++ compiler was found")
    endforeach()
    return()
endif()
enable_language(CXX)

# suture_cuda_library(TARGET DIRECTORY SOURCES...). What stands in for CUDA lies in a directory that tests look in, the back
# end in one that they do not: they have to open it.
function(suture_cuda_library target directory)
    add_library(${target} SHARED ${ARGN})
    target_compile_features(${target} PUBLIC cxx_std_17)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/${directory}")
endfunction()

suture_cuda_library(suture_exec cuda/exec "${cuda_tests}/exec/fiber.cpp" "${cuda_tests}/exec/grid.cpp"
    "${cuda_tests}/exec/runtime.cpp" "${cuda_tests}/exec/calls.cpp")
target_include_directories(suture_exec PUBLIC "${cuda_tests}/exec" "${cuda_tests}")
target_link_libraries(suture_exec PUBLIC suture_build)
# "#pragma unroll" is nvcc's. GCC fears for arrays of m entries when m could be 0, which no caller allows.
target_compile_options(suture_exec PUBLIC -Wno-unknown-pragmas $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>)

# .cu files as C++.
function(suture_cuda_sources)
    set_source_files_properties(${ARGN} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-x;c++")
endfunction()

# The back end as the execution layer runs it, under the name that libsuture looks for. Contraction is off, as in nvcc's
# build.
file(GLOB kernel_sources CONFIGURE_DEPENDS "${cuda_kernels}/*.cu")
file(GLOB host_sources CONFIGURE_DEPENDS "${cuda_kernels}/*.cpp")
suture_cuda_sources(${kernel_sources})
suture_cuda_library(suture_cuda_exec cuda ${kernel_sources} ${host_sources})
target_include_directories(suture_cuda_exec PRIVATE "${PROJECT_SOURCE_DIR}")
target_link_libraries(suture_cuda_exec PRIVATE suture_exec ${CMAKE_DL_LIBS})
set_target_properties(suture_cuda_exec PROPERTIES OUTPUT_NAME suture_cuda VERSION ${PROJECT_VERSION}
    SOVERSION ${SUTURE_SOVERSION} CXX_VISIBILITY_PRESET hidden)

# cuBLAS and cuSOLVER, answered by OpenBLAS and the LAPACK in it.
foreach(name IN ITEMS cublas cusolver)
    suture_cuda_library(suture_exec_${name} cuda/exec "${cuda_tests}/exec/${name}.cpp")
    target_link_libraries(suture_exec_${name} PRIVATE suture_exec suture::openblas)
    set_target_properties(suture_exec_${name} PROPERTIES OUTPUT_NAME ${name})
    add_dependencies(suture_cuda_exec suture_exec_${name})
endforeach()
set_target_properties(suture_exec_cublas PROPERTIES SOVERSION 13)
set_target_properties(suture_exec_cusolver PROPERTIES SOVERSION 12)

# suture_cuda_run(NAME COMMAND...): a test of the execution layer's libsuture_cuda.
function(suture_cuda_run name)
    add_test(NAME cuda.${name} COMMAND ${ARGN})
    set_tests_properties(cuda.${name} PROPERTIES LABELS cuda TIMEOUT 600
        ENVIRONMENT "SUTURE_CUDA_LIBRARY=$<TARGET_FILE:suture_cuda_exec>")
    # A sanitizer stands between a library and the loader, which then does not look where the library says.
    if(SUTURE_SANITIZE)
        set_tests_properties(cuda.${name} PROPERTIES
            ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_prepend:${PROJECT_BINARY_DIR}/cuda/exec")
    endif()
endfunction()

# suture_cuda_test(NAME SOURCES...): tests/cuda/SOURCES, a program of its own.
function(suture_cuda_test name)
    list(TRANSFORM ARGN PREPEND "${cuda_tests}/")
    add_executable(test_cuda_${name} ${ARGN})
    target_include_directories(test_cuda_${name} PRIVATE "${PROJECT_SOURCE_DIR}")
    target_link_libraries(test_cuda_${name} PRIVATE suture_exec suture_static suture::openblas Threads::Threads m
        ${CMAKE_DL_LIBS})
    add_dependencies(test_cuda_${name} suture_cuda_exec)
    if(SUTURE_SANITIZE AND name MATCHES "^(passes|drive)$")
        suture_cuda_run(${name} test_cuda_${name} short)
    else()
        suture_cuda_run(${name} test_cuda_${name})
    endif()
endfunction()

suture_cuda_sources("${cuda_tests}/test_exec.cu" "${cuda_tests}/test_solvers.cu")
suture_cuda_test(exec test_exec.cu)
suture_cuda_test(passes test_passes.cpp twin.cpp)
suture_cuda_test(context test_context.cpp)
suture_cuda_test(solvers test_solvers.cu)
suture_cuda_test(drive test_drive.cpp)
suture_cuda_test(traffic test_traffic.cpp)

# suture_mirrored_test(NAME SOURCE ARGUMENTS...): a test that knows nothing of devices, on a CUDA context; tests/cuda/mirror.cpp
# copies its arrays.
add_library(suture_mirror OBJECT "${cuda_tests}/mirror.cpp")
target_link_libraries(suture_mirror PUBLIC suture_test_support suture_exec)
foreach(call IN ITEMS create destroy step direction propose project apply parameters_changed state get_tensor save load
        save_memory load_memory)
    target_link_options(suture_mirror INTERFACE -Wl,--wrap=sut_optimizer_${call})
endforeach()
target_link_options(suture_mirror INTERFACE -Wl,--wrap=sut_surgery_direction -Wl,--wrap=sut_cone_project)

function(suture_mirrored_test name source)
    string(REPLACE "." "_" target "cuda_${name}")
    add_executable(${target} "${CMAKE_CURRENT_SOURCE_DIR}/${source}")
    target_link_libraries(${target} PRIVATE suture_mirror)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    add_dependencies(${target} suture_cuda_exec)
    suture_cuda_run(${name} ${target} ${ARGN})
    set_property(TEST cuda.${name} APPEND PROPERTY ENVIRONMENT SUTURE_BACKEND=cuda)
endfunction()

suture_mirrored_test(agreement cuda/test_agreement.c)
foreach(name IN ITEMS cone surgery optim)
    suture_mirrored_test(golden.${name} golden/golden_${name}.c "${CMAKE_CURRENT_SOURCE_DIR}/golden/data/${name}.json")
endforeach()
file(GLOB properties CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" "${CMAKE_CURRENT_SOURCE_DIR}/property/test_*.c")
foreach(source IN LISTS properties)
    string(REGEX REPLACE "^property/test_(.*)\\.c$" "\\1" name "${source}")
    if(name STREQUAL "step_bits") # of threads and instruction sets
        continue()
    endif()
    suture_mirrored_test(property.${name} "${source}")
endforeach()

# suture-pinn --backend cuda: its library as the execution layer runs it, against the solver on the CPU; and the program.
if(TARGET pinn_objects)
    set(pinn_directory "${PROJECT_SOURCE_DIR}/examples/pinn")
    file(GLOB pinn_kernels CONFIGURE_DEPENDS "${pinn_directory}/cuda/*.cu")
    file(GLOB pinn_host CONFIGURE_DEPENDS "${pinn_directory}/cuda/*.cpp")
    suture_cuda_sources(${pinn_kernels})
    suture_cuda_library(suture_pinn_cuda_exec cuda ${pinn_kernels} ${pinn_host})
    target_include_directories(suture_pinn_cuda_exec PRIVATE "${pinn_directory}" "${PROJECT_SOURCE_DIR}/include")
    target_link_libraries(suture_pinn_cuda_exec PRIVATE suture_exec ${CMAKE_DL_LIBS})
    set_target_properties(suture_pinn_cuda_exec PROPERTIES OUTPUT_NAME suture_pinn_cuda VERSION ${PROJECT_VERSION}
        SOVERSION ${SUTURE_SOVERSION} CXX_VISIBILITY_PRESET hidden)
    add_dependencies(suture_pinn_cuda_exec suture_exec_cublas)

    add_executable(test_cuda_pinn "${cuda_tests}/test_pinn.cpp")
    target_link_libraries(test_cuda_pinn PRIVATE pinn_objects suture_exec suture_static suture::openblas Threads::Threads m
        ${CMAKE_DL_LIBS})
    add_executable(test_cuda_pinn_run "${cuda_tests}/test_pinn_run.c" "${CMAKE_CURRENT_SOURCE_DIR}/cli/program.c")
    target_link_libraries(test_cuda_pinn_run PRIVATE suture_test_support)
    target_include_directories(test_cuda_pinn_run PRIVATE "${CMAKE_CURRENT_SOURCE_DIR}/cli")
    target_compile_definitions(test_cuda_pinn_run PRIVATE SUTURE_PINN="$<TARGET_FILE:suture-pinn>")
    add_dependencies(test_cuda_pinn_run suture-pinn)
    foreach(name IN ITEMS pinn pinn_run)
        add_dependencies(test_cuda_${name} suture_cuda_exec suture_pinn_cuda_exec)
        suture_cuda_run(${name} test_cuda_${name})
        set_property(TEST cuda.${name} APPEND PROPERTY ENVIRONMENT
            "SUTURE_PINN_CUDA_LIBRARY=$<TARGET_FILE:suture_pinn_cuda_exec>")
    endforeach()
else()
    foreach(name IN ITEMS pinn pinn_run)
        suture_skipped_test(cuda.${name} "it needs the examples (SUTURE_BUILD_EXAMPLES)")
    endforeach()
endif()

if(SUTURE_NVCC)
    add_test(NAME cuda.nvcc COMMAND sh "${cuda_tests}/nvcc.sh" "${SUTURE_NVCC}" "${PROJECT_SOURCE_DIR}"
        "${PROJECT_BINARY_DIR}/nvcc")
    set_tests_properties(cuda.nvcc PROPERTIES LABELS cuda TIMEOUT 900)
else()
    suture_skipped_test(cuda.nvcc "nvcc was not found (looked on the path, in CUDA_PATH, CUDA_HOME and /usr/local/cuda)")
endif()

# Minutes each under the sanitizers, where the others do the same work: left to the optimized builds.
get_property(names DIRECTORY PROPERTY TESTS)
foreach(name IN LISTS names)
    if(name MATCHES "^cuda\\.(property|agreement|pinn|traffic|golden\\.surgery|nvcc)")
        set_property(TEST ${name} APPEND PROPERTY LABELS cuda-long)
    endif()
endforeach()
