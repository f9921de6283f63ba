# Compiler settings of everything in this tree. The interface target `suture_build` carries them.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

add_library(suture_build INTERFACE)
target_include_directories(suture_build INTERFACE "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
# Threads, signal masks and files are those of POSIX and Linux; a file that needs less says so in its first lines.
target_compile_definitions(suture_build INTERFACE _GNU_SOURCE)
target_compile_options(suture_build INTERFACE -Wall -Wextra -Wpedantic $<$<BOOL:${SUTURE_WERROR}>:-Werror>)

# "#pragma GCC ivdep" is a promise to GCC; other compilers do without it.
target_compile_options(suture_build INTERFACE $<$<C_COMPILER_ID:Clang,AppleClang>:-Wno-unknown-pragmas>)

# A multiply and an add are never fused: instruction sets and the GPU can then be compared bit for bit.
target_compile_options(suture_build INTERFACE -ffp-contract=off)

# The n-dimensional loops vectorise only if sqrt need not set errno and comparisons need not trap. -ffast-math is never
# used: it would reorder sums and lose NaN. Debug and sanitizer builds keep their own optimization level; the kernels would
# take minutes to compile otherwise.
set(SUTURE_LOOP_OPTIONS -fno-math-errno -fno-trapping-math)
if(NOT SUTURE_SANITIZE)
    list(PREPEND SUTURE_LOOP_OPTIONS $<$<NOT:$<CONFIG:Debug>>:-O3>)
endif()

if(SUTURE_SANITIZE)
    add_compile_options(-fsanitize=${SUTURE_SANITIZE} -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${SUTURE_SANITIZE})
    if(SUTURE_SANITIZE MATCHES "undefined")
        add_compile_options(-fno-sanitize-recover=undefined)
    endif()
endif()

# Instruction sets that the CPU back end is compiled for; chosen at run time.
set(SUTURE_ISAS baseline)
if(CMAKE_C_COMPILER_ID MATCHES "GNU|Clang" AND CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$"
   AND CMAKE_SIZEOF_VOID_P EQUAL 8)
    list(APPEND SUTURE_ISAS avx2 avx512)
endif()
set(SUTURE_ISA_OPTIONS_baseline "")
set(SUTURE_ISA_OPTIONS_avx2 -mavx2 -mfma -mf16c)
set(SUTURE_ISA_OPTIONS_avx512 -mavx512f -mavx512dq -mavx512vl -mavx512bw -mprefer-vector-width=512 -mfma -mf16c)
