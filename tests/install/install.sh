#!/bin/sh
# An installed copy is found, linked and run by a foreign project: C11 and C++17, CMake and pkg-config, shared and static,
# from a prefix with a space in its name, and again after the prefix was moved. A wrong version is refused.
# usage: install.sh SOURCE_DIR BUILD_DIR VERSION CMAKE C_COMPILER CXX_COMPILER
set -u
source=$1 build=$2 version=$3 cmake=$4 cc=$5 cxx=$6
consumer=$source/tests/install/consumer
work=$(mktemp -d) || exit 1
# cmake --install notes what it wrote in the build tree; a note of the user's own install is put back.
manifest=$build/install_manifest.txt
[ ! -f "$manifest" ] || cp "$manifest" "$work/manifest"
finish() {
    rm -f "$manifest"
    [ ! -f "$work/manifest" ] || cp "$work/manifest" "$manifest"
    rm -rf "$work"
}
trap finish EXIT
failed=0 passed=0

# expect yes|no NAME COMMAND...: the command's success or failure is what is expected.
expect() {
    want=$1 name=$2
    shift 2
    if "$@" >"$work/log" 2>&1; then got=yes; else got=no; fi
    if [ "$want" = "$got" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED: $name"
        sed 's/^/    /' "$work/log"
    fi
}

# with_cmake LIBRARY: configure, build and run the consumer against $prefix.
with_cmake() {
    dir=$work/$1
    rm -rf "$dir"
    expect yes "$1, configure, $prefix" "$cmake" -S "$consumer" -B "$dir" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DVERSION="$version" -DCOMPONENT="$1"
    expect yes "$1, build" "$cmake" --build "$dir"
    expect yes "$1, run C11" "$dir/consumer_c"
    expect yes "$1, run C++17" "$dir/consumer_cpp"
}

# with_pkg_config LIBRARY: the same through suture.pc. pkg-config quotes for the shell, hence eval.
with_pkg_config() {
    PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name suture.pc)")${PKG_CONFIG_PATH:+:$PKG_CONFIG_PATH}
    export PKG_CONFIG_PATH
    flags=$(pkg-config --cflags suture)
    libdir=$(pkg-config --variable=libdir suture | sed 's/\\//g')
    if [ "$1" = static ]; then
        libs=$(pkg-config --static --libs suture | sed 's/-lsuture/-l:libsuture.a/')
    else
        libs=$(pkg-config --libs suture)
    fi
    expect yes "$1, pkg-config, compile C11" \
        sh -c "eval '$cc' -std=c11 '$consumer/consumer.c' \$0 \$1 -o '$work/pc_c'" "$flags" "$libs"
    expect yes "$1, pkg-config, compile C++17" \
        sh -c "eval '$cxx' -std=c++17 '$consumer/consumer.cpp' \$0 \$1 -o '$work/pc_cpp'" "$flags" "$libs"
    expect yes "$1, pkg-config, run C11" env LD_LIBRARY_PATH="$libdir" "$work/pc_c"
    expect yes "$1, pkg-config, run C++17" env LD_LIBRARY_PATH="$libdir" "$work/pc_cpp"
    if [ "$1" = static ]; then
        expect no "the static programs do not need libsuture.so" sh -c "readelf -d '$work/pc_c' | grep libsuture"
    fi
}

everything() {
    with_cmake shared
    with_cmake static
    with_pkg_config shared
    with_pkg_config static
}

prefix="$work/a prefix"
expect yes "install" "$cmake" --install "$build" --prefix "$prefix"
everything

pages=$(dirname "$(find "$prefix" -path "*/suture/README.md")")
expect yes "links of the installed pages" sh "$source/tests/docs/links.sh" "$pages"

for wrong in 9.0 0.0.1; do
    expect no "version $wrong is refused" "$cmake" -S "$consumer" -B "$work/wrong" -DCMAKE_PREFIX_PATH="$prefix" \
        -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" -DVERSION="$wrong" -DCOMPONENT=shared
    rm -rf "$work/wrong"
done
expect no "pkg-config: version 9 is refused" \
    env PKG_CONFIG_PATH="$PKG_CONFIG_PATH" pkg-config --exists "suture >= 9"
expect no "nothing that was installed names its prefix" grep -rlF "$prefix" "$prefix"

mv "$prefix" "$work/moved prefix"
prefix="$work/moved prefix"
unset PKG_CONFIG_PATH
everything
for program in "$prefix"/bin/*; do
    [ ! -x "$program" ] || expect yes "$(basename "$program") runs after the move" "$program" list
done

prefix="$work/gone again"
expect yes "install" "$cmake" --install "$build" --prefix "$prefix"
expect yes "uninstall" "$cmake" "-DMANIFEST=$manifest" -P "$source/cmake/SutureUninstall.cmake"
expect no "uninstall leaves nothing" sh -c "find '$prefix' ! -type d | grep ."
expect no "uninstall leaves no directory of its own" sh -c "find '$prefix' -name suture | grep ."

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 20 ]
