#!/bin/sh
# Installs what is missing, builds Suture and runs all its tests: the optimized build (on the machine's widest instruction
# set and on the plain one), a selection under valgrind, the Python package with the packages that it is compared with, and
# builds with the address, undefined-behaviour and thread sanitizers. Ends with one line "N passed, N failed".
# usage: ./test.sh [release|baseline-isa|valgrind|python|asan-ubsan|tsan ...]      (no argument: all of them)
set -u
cd "$(dirname "$0")" || exit 1
. cmake/packages.sh

suture_packages cc c++ cmake pkg-config openblas jansson cmocka ninja? gnuplot? valgrind? python3-venv? python3-dev? || exit 1

stages=${*:-release baseline-isa valgrind python asan-ubsan tsan}
jobs=$(suture_jobs)
log=$(mktemp -d) || exit 1
trap 'rm -rf "$log"' EXIT
passed=0 failed=0 skipped=0

say() { printf '\n== %s\n' "$*"; }

# build PRESET: configure and compile; a failure counts as one.
build() {
    say "build $1"
    if cmake --preset "$1" -DSUTURE_BUILD_TESTS=ON >"$log/configure" 2>&1; then
        sed -n '/^-- Suture/,$p' "$log/configure"
        cmake --build --preset "$1" --parallel "$jobs" >"$log/build" 2>&1 && return 0
        cat "$log/build"
    else
        cat "$log/configure"
    fi
    echo "FAILED: build $1"
    failed=$((failed + 1))
    return 1
}

# attribute NAME: of the test suite in ctest's report.
attribute() { sed -n "s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$log/report.xml" | head -1; }

# run PRESET: ctest, added to the sum. $wrap, if set, starts it.
run() {
    say "test $1"
    rm -f "$log/report.xml"
    ${wrap-} ctest --preset "$1" --parallel "$jobs" --output-junit "$log/report.xml"
    if ! [ -s "$log/report.xml" ]; then
        echo "FAILED: ctest --preset $1 gave no report"
        failed=$((failed + 1))
        return
    fi
    tests=$(attribute tests) bad=$(attribute failures)
    out=$(($(attribute skipped) + $(attribute disabled)))
    passed=$((passed + tests - bad - out))
    failed=$((failed + bad))
    skipped=$((skipped + out))
}

# The Python package in a virtual environment of its own; its last line is added to the sum.
run_python() {
    say "test python"
    tests/python.sh build/python >"$log/python" 2>&1
    status=$?
    cat "$log/python"
    if [ "$status" -eq 77 ]; then
        skipped=$((skipped + 1))
        return
    fi
    counts=$(sed -n '$s/^\([0-9]*\) passed, \([0-9]*\) failed$/\1 \2/p' "$log/python")
    out=$(sed -n 's/^\([0-9]*\) skipped$/\1/p' "$log/python" | tail -1)
    skipped=$((skipped + ${out:-0}))
    [ -z "$counts" ] || passed=$((passed + ${counts% *})) failed=$((failed + ${counts#* }))
    if [ -z "$counts" ] || { [ "$status" -ne 0 ] && [ "${counts#* }" -eq 0 ]; }; then
        echo "FAILED: tests/python.sh ended with $status"
        failed=$((failed + 1))
    fi
}

# The thread sanitizer of older compilers does not start where the kernel spreads addresses widely; without address
# randomisation it does.
tsan_wrapper() {
    echo 'int main(void) { return 0; }' >"$log/t.c"
    "${CC:-cc}" -fsanitize=thread "$log/t.c" -o "$log/t" || return 0
    "$log/t" >/dev/null 2>&1 || ! command -v setarch >/dev/null || echo "setarch $(uname -m) -R"
}

for stage in $stages; do
    wrap=''
    case $stage in
    release) build release && run release ;;
    baseline-isa) build release && run baseline-isa ;;
    valgrind)
        if command -v valgrind >/dev/null 2>&1; then
            build release && run valgrind
        else
            say "valgrind is not there: its tests are left out"
        fi
        ;;
    python) run_python ;;
    asan-ubsan) build asan-ubsan && run asan-ubsan ;;
    tsan) build tsan && wrap=$(tsan_wrapper) && run tsan ;;
    *)
        echo "unknown stage $stage: release, baseline-isa, valgrind, python, asan-ubsan or tsan" >&2
        exit 2
        ;;
    esac
done

say "all stages: $stages"
[ "$skipped" -eq 0 ] || echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
