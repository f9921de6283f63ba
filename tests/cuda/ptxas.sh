#!/bin/sh
# Prints registers, shared memory and spills of every kernel as a table, at full optimization.
# usage: ptxas.sh NVCC SOURCE_DIRECTORY [ARCHITECTURE]        (default: sm_90)
set -eu
nvcc=$1 source=$2 arch=${3:-sm_90}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "| kernel ($arch) | registers | static shared memory | stack | spills |"
echo "|---|---|---|---|---|"
for file in "$source"/kernels/*.cu; do
    "$nvcc" -std=c++17 -fmad=false -O3 -arch="$arch" -Xptxas -v -I"$source/include" -I"$source/src" -I"$source" \
        -c "$file" -o "$work/x.o" 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    # Kernels live in an anonymous namespace, whose name ends in the file's hash.
    awk '/Compiling entry function/ { split($0, q, "\x27"); name = q[2]; sub(/^_ZN[0-9]+_GLOBAL__N__[^E]*_cu_[0-9a-f]{8}_?[0-9]*/, "", name)
             match(q[2], /[a-z_]+_kernel(I[A-Za-z0-9]*)?E/); name = substr(q[2], RSTART, RLENGTH - 1)
             sub(/^[0-9a-f_]*_/, "", name); real = name ~ /_kernelId/ ? "double" : name ~ /_kernelIf/ ? "float" : ""
             flags = ""; rest = name; while (match(rest, /Lb[01]/)) { flags = flags (substr(rest, RSTART + 2, 1) == "1" ? ", yes" : ", no"); rest = substr(rest, RSTART + 3) }
             sub(/_kernel.*/, "", name) }
         /stack frame/ { stack = $1; spill = $5 + $9 }
         /Used [0-9]+ registers/ { for (i = 1; i < NF; ++i) { if ($i == "Used") regs = $(i + 1); if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) smem = $i }
             printf "| %s<%s%s> | %s | %s | %s | %s |\n", name, real, flags, regs, smem ? smem : 0, stack, spill; smem = 0 }' "$work/log"
done
