#!/bin/sh
# Compiles the whole back end, and what suture-pinn does on a GPU, with nvcc, warnings as errors: machine code for two
# architectures, and PTX. The execution layer runs these files without nvcc; this says that nvcc takes them too. Both machine
# codes are made from one PTX, and the device code is optimized as little as this nvcc can: it is not run.
# usage: nvcc.sh NVCC SOURCE_DIRECTORY WORK_DIRECTORY
set -eu
nvcc=$1 source=$2 work=$3
mkdir -p "$work"
quick="-Xcicc -O1 -Xptxas -O1"
if "$nvcc" --help | grep -q Ofast-compile; then
    quick="-Ofc max"
fi
for file in "$source"/kernels/*.cu "$source"/kernels/*.cpp "$source"/examples/pinn/cuda/*.cu \
    "$source"/examples/pinn/cuda/*.cpp; do
    # The example sees nothing of the library but its public headers.
    case $file in
        */examples/*) name=pinn_$(basename "$file") root=$source/examples/pinn include=$root ;;
        *) name=$(basename "$file") root=$source include=$source/src ;;
    esac
    # -fmad=false: multiply and add stay apart, as on the CPU; roots and divisions are IEEE's by default.
    "$nvcc" -std=c++17 -fmad=false $quick -gencode 'arch=compute_80,code=[sm_80,sm_90,compute_80]' \
        -Werror all-warnings -Xcompiler -Wall,-Wextra -D_GNU_SOURCE \
        -I"$source/include" -I"$include" -I"$root" \
        -c "$file" -o "$work/$name.o"
    echo "$name"
done
echo "sm_80, sm_90, PTX"
