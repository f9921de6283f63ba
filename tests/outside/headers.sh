#!/bin/sh
# Every public header compiles alone, twice in a row, as C11 and as C++17, with warnings as errors.
# usage: headers.sh INCLUDE_DIR C_COMPILER [CXX_COMPILER]
set -u
include=$1 cc=$2 cxx=${3:-}
warnings="-Wall -Wextra -Wpedantic -Wconversion -Wshadow -Werror -fsyntax-only"
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 passed=0

check() { # check NAME COMMAND...: compile $work/unit
    name=$1
    shift
    if "$@" "$work/unit"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; fi
}

for header in "$include"/suture/*.h; do
    name=suture/$(basename "$header")
    cat >"$work/unit" <<END
#include "$name"
#include "$name"
extern int sut_nothing;
END
    check "$name as C11" "$cc" -std=c11 $warnings -Wstrict-prototypes -I"$include" -x c
    [ -z "$cxx" ] || check "$name as C++17" "$cxx" -std=c++17 $warnings -I"$include" -x c++
done
[ -n "$cxx" ] || echo "There is no C++ compiler: the C++17 half was left out."
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
