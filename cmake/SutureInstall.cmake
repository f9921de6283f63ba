# Install rules: libraries, headers, CMake package, suture.pc, the programs. The prefix may hold spaces and may be moved
# afterwards: nothing that is installed knows its own absolute path.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/suture")

install(TARGETS suture_static EXPORT suture-static ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
install(EXPORT suture-static NAMESPACE suture:: FILE suture-static-targets.cmake DESTINATION "${package_dir}")
if(SUTURE_BUILD_SHARED)
    install(TARGETS suture EXPORT suture-shared
        LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}" RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}"
        ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT suture-shared NAMESPACE suture:: FILE suture-shared-targets.cmake DESTINATION "${package_dir}")
endif()

install(DIRECTORY "${PROJECT_SOURCE_DIR}/include/suture" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}"
    FILES_MATCHING PATTERN "*.h")

configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/suture-config.cmake.in"
    "${PROJECT_BINARY_DIR}/cmake/suture-config.cmake" INSTALL_DESTINATION "${package_dir}")
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/cmake/suture-config-version.cmake"
    VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/cmake/suture-config.cmake"
    "${PROJECT_BINARY_DIR}/cmake/suture-config-version.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/SutureDependencies.cmake" DESTINATION "${package_dir}")

# suture.pc finds its prefix from its own place; an absolute library directory is taken as it is.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(pc_prefix "${CMAKE_INSTALL_PREFIX}")
    set(pc_libdir "${CMAKE_INSTALL_FULL_LIBDIR}")
    set(pc_includedir "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
    file(RELATIVE_PATH up "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
    string(REGEX REPLACE "/$" "" up "${up}")
    set(pc_prefix "\${pcfiledir}/${up}")
    set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
    set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# What a program that links the static library needs. Written out instead of Requires.private: that would draw in what
# OpenBLAS needs to be linked statically itself (a Fortran runtime), and its headers, which no user of Suture needs.
set(libs ${SUTURE_OPENBLAS_LDFLAGS} -lm -pthread)
list(REMOVE_DUPLICATES libs)
list(JOIN libs " " libs)
if(NOT SUTURE_OPENBLAS_LDFLAGS)
    string(PREPEND libs "-lopenblas ")
endif()
# Without a shared library that is every program.
if(SUTURE_BUILD_SHARED)
    set(pc_public "")
    set(pc_private "${libs}")
else()
    set(pc_public " ${libs}")
    set(pc_private "")
endif()
configure_file("${PROJECT_SOURCE_DIR}/cmake/suture.pc.in" "${PROJECT_BINARY_DIR}/cmake/suture.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/cmake/suture.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")

# The pages lie as they do in the source tree, examples beside them, so that their links hold; those to headers are led to
# where these are installed.
if(IS_ABSOLUTE "${CMAKE_INSTALL_DOCDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
    set(to_headers "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
else()
    file(RELATIVE_PATH to_headers "/${CMAKE_INSTALL_DOCDIR}" "/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
file(GLOB pages CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}" "${PROJECT_SOURCE_DIR}/*.md"
    "${PROJECT_SOURCE_DIR}/docs/*.md")
foreach(page IN LISTS pages)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/${page}")
    file(READ "${PROJECT_SOURCE_DIR}/${page}" text)
    string(REPLACE "](include/" "](${to_headers}/" text "${text}")
    if(IS_ABSOLUTE "${to_headers}")
        string(REPLACE "](../include/" "](${to_headers}/" text "${text}")
    else()
        string(REPLACE "](../include/" "](../${to_headers}/" text "${text}")
    endif()
    file(WRITE "${PROJECT_BINARY_DIR}/pages/${page}" "${text}")
endforeach()
install(DIRECTORY "${PROJECT_BINARY_DIR}/pages/" DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(FILES docs/step.svg DESTINATION "${CMAKE_INSTALL_DOCDIR}/docs")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DOCDIR}")
install(DIRECTORY examples DESTINATION "${CMAKE_INSTALL_DOCDIR}" PATTERN CMakeLists.txt EXCLUDE)
if(TARGET suture-pinn)
    install(TARGETS suture-pinn RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}")
endif()

# Removes the files that the last install of this build tree wrote.
add_custom_target(uninstall VERBATIM COMMAND "${CMAKE_COMMAND}" "-DMANIFEST=${PROJECT_BINARY_DIR}/install_manifest.txt"
    -P "${PROJECT_SOURCE_DIR}/cmake/SutureUninstall.cmake")
