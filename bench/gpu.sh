#!/bin/sh
# Speed of the CUDA back end on the GPU of this machine: the table of docs/cuda.md. Needs what tests/gpu.sh needs; takes about a
# minute after the build. A PyTorch with CUDA, if `python3` has one, is measured in the same run.
# usage: bench/gpu.sh [BUILD_DIRECTORY]        (default: build/gpu)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/gpu}
SUTURE_GPU_BUILD_ONLY=1 "$root/tests/gpu.sh" "$build"
SUTURE_CUDA_LIBRARY=$(find "$build" -name 'libsuture_cuda.so.[0-9]' | head -1)
export SUTURE_CUDA_LIBRARY
"$build/bench_gpu"
if python3 -c 'import torch, sys; sys.exit(not torch.cuda.is_available())' 2>/dev/null; then
    python3 "$root/bench/gpu_torch.py"
else
    echo "PyTorch with CUDA was not found: left out"
fi
