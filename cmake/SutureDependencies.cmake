# Finds what the library links with and makes the imported target `suture::openblas`. Installed with the package: a consumer
# of the static library needs the same. Sets SUTURE_MISSING, a sentence about what was not found and how to get it, or the
# empty string.

set(SUTURE_MISSING "")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads QUIET)
find_package(PkgConfig QUIET)

if(NOT TARGET suture::openblas)
    if(PkgConfig_FOUND)
        pkg_check_modules(SUTURE_OPENBLAS QUIET IMPORTED_TARGET openblas)
    endif()
    if(SUTURE_OPENBLAS_FOUND)
        add_library(suture::openblas INTERFACE IMPORTED)
        target_link_libraries(suture::openblas INTERFACE PkgConfig::SUTURE_OPENBLAS)
    else()
        find_package(OpenBLAS CONFIG QUIET)
        if(OpenBLAS_FOUND)
            set(SUTURE_OPENBLAS_VERSION "${OpenBLAS_VERSION}")
            add_library(suture::openblas INTERFACE IMPORTED)
            target_link_libraries(suture::openblas INTERFACE ${OpenBLAS_LIBRARIES})
            target_include_directories(suture::openblas INTERFACE ${OpenBLAS_INCLUDE_DIRS})
        else()
            string(APPEND SUTURE_MISSING "OpenBLAS was looked for through pkg-config (openblas) and as a CMake package "
                "(OpenBLAS) and was not found; on Debian: apt-get install libopenblas-dev pkg-config. ")
        endif()
    endif()
endif()

if(NOT TARGET Threads::Threads)
    string(APPEND SUTURE_MISSING "No thread library was found. ")
endif()
