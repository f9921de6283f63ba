#!/bin/sh
# What the libraries define. Shared: exactly the functions that the public headers declare, and a soname that follows the
# ABI. Static: every global name begins with sut_. Both: no mutable global data (a context holds all state).
# usage: symbols.sh INCLUDE_DIR STATIC_LIBRARY [SHARED_LIBRARY SONAME]
set -u
export LC_ALL=C
include=$1 static=$2 shared=${3:-} soname=${4:-}
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 passed=0

# empty NAME FILE: passes when FILE is empty, else shows it.
empty() {
    if [ -s "$2" ]; then
        failed=$((failed + 1))
        echo "FAILED: $1:"
        sed 's/^/    /' "$2"
    else
        passed=$((passed + 1))
    fi
}

# The functions that SUT_API declares; a declaration may run over several lines.
cat "$include"/suture/*.h | grep -v '^#' | tr '\n' ' ' | tr ';{}' '\n\n\n' |
    sed -n 's/.*SUT_API [^(]*[ *]\(sut_[a-z0-9_]*\)(.*/\1/p' | sort -u >"$work/declared"
[ -s "$work/declared" ] || { echo "FAILED: no declarations were found below $include"; exit 1; }

nm -g --defined-only "$static" | awk 'NF == 3 {print $3}' | sort -u >"$work/static"
grep -v '^sut_' "$work/static" >"$work/foreign"
empty "global names of $static that do not begin with sut_" "$work/foreign"
comm -23 "$work/declared" "$work/static" >"$work/missing"
empty "declared but not defined in $static" "$work/missing"

objdump -h "$static" | awk '/file format/ {member = $1}
    $2 ~ /^\.(data|bss|tdata|tbss)(\.|$)/ && $2 !~ /^\.data\.rel\.ro/ && $3 !~ /^0+$/ {print member, $2, $3}' >"$work/data"
objdump -t "$static" | awk '$0 ~ /\*COM\*/ {print "common:", $NF}' >>"$work/data"
empty "mutable global data in $static" "$work/data"

if [ -n "$shared" ]; then
    nm -D --defined-only "$shared" | awk 'NF == 3 {print $3}' | sort -u >"$work/shared"
    comm -13 "$work/declared" "$work/shared" >"$work/extra"
    empty "exported by $shared but not declared" "$work/extra"
    comm -23 "$work/declared" "$work/shared" >"$work/missing"
    empty "declared but not exported by $shared" "$work/missing"
    readelf -d "$shared" | sed -n 's/.*SONAME.*\[\(.*\)\]/\1/p' >"$work/soname"
    echo "$soname" | diff - "$work/soname" >"$work/difference"
    empty "soname of $shared" "$work/difference"
fi
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
