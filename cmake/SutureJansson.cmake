# Finds Jansson, which the examples write their results with and the tests read golden files with, and makes the imported
# target `suture::jansson`. The library itself does without. Appends to SUTURE_MISSING when it is not there.

if(PkgConfig_FOUND)
    pkg_check_modules(SUTURE_JANSSON QUIET IMPORTED_TARGET jansson>=2.7)
endif()
if(SUTURE_JANSSON_FOUND)
    add_library(suture::jansson INTERFACE IMPORTED)
    target_link_libraries(suture::jansson INTERFACE PkgConfig::SUTURE_JANSSON)
else()
    string(APPEND SUTURE_MISSING "Jansson (2.7 or later) was looked for through pkg-config (jansson) and was not found; the "
        "examples and tests need it (on Debian: apt-get install libjansson-dev pkg-config), the library alone does not: "
        "-DSUTURE_BUILD_EXAMPLES=OFF -DSUTURE_BUILD_TESTS=OFF. ")
endif()
