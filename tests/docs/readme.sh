#!/bin/sh
# The C program in README.md compiles without a warning and runs as it is printed.
# usage: readme.sh README INCLUDE_DIR C_COMPILER LIBRARY_DIR
set -eu
readme=$1 include=$2 cc=$3 libdir=$4
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed -n '/^```c$/,/^```$/p' "$readme" | sed '/^```/d' >"$work/readme.c"
grep -q sut_optimizer_step "$work/readme.c" || { echo "There is no C program in $readme."; exit 1; }
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -I"$include" "$work/readme.c" -o "$work/readme" \
    -L"$libdir" -lsuture -Wl,-rpath,"$libdir"
"$work/readme" | tee "$work/out"

# A point between the minima of the two losses, (0, 1) and (2, 0), where no step helps both: x1 = (2 - x0)/(9 x0 + 2).
awk -F '[(,)]' '{x = $2; y = $3; d = y - (2 - x) / (9 * x + 2); exit !(x > 0 && x < 2 && d < 0.02 && d > -0.02)}' "$work/out" ||
    { echo "The result is not a Pareto point of the two losses."; exit 1; }
