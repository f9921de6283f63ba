#!/bin/sh
# Builds the CUDA back end and runs its tests on the GPU of this machine, then once more under compute-sanitizer, if that is
# installed (a short selection: it is slow). Needs nvcc, CMake and a C compiler, nothing else; takes a few minutes.
# usage: tests/gpu.sh [BUILD_DIRECTORY]        (default: build/gpu)
# environment: SUTURE_GPU_ARCHITECTURES (default: native), SUTURE_GPU_SECONDS for the sanitizer (default: 60 for each tool)
set -eu
root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build/gpu}
seconds=${SUTURE_GPU_SECONDS:-60}

mkdir -p "$(dirname "$build")"
command -v nvcc >/dev/null || PATH=$PATH:/usr/local/cuda/bin
command -v nvcc >/dev/null || { echo "gpu.sh: nvcc was not found on the path nor in /usr/local/cuda/bin" >&2; exit 2; }
cmake -S "$root/tests/gpu" -B "$build" -DCMAKE_BUILD_TYPE=Release \
    -DCMAKE_CUDA_ARCHITECTURES="${SUTURE_GPU_ARCHITECTURES:-native}" >"$build.log" 2>&1 ||
    { cat "$build.log" >&2; exit 2; }
cmake --build "$build" --parallel "$(nproc)" >>"$build.log" 2>&1 || { tail -40 "$build.log" >&2; exit 2; }
[ "${SUTURE_GPU_BUILD_ONLY:-}" ] && exit 0

SUTURE_CUDA_LIBRARY=$(find "$build" -name 'libsuture_cuda.so.[0-9]' | head -1)
export SUTURE_CUDA_LIBRARY
failed=0
if command -v nvidia-smi >/dev/null; then
    nvidia-smi --query-gpu=name,driver_version --format=csv,noheader
fi
for test in passes drive; do
    "$build/test_$test" || failed=1
done
if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
        status=0
        timeout "$seconds" compute-sanitizer --tool "$tool" --error-exitcode 9 "$build/test_drive" short \
            >"$build/$tool.log" 2>&1 || status=$?
        # A finding is one whether or not there was time for the rest.
        if grep '^=========' "$build/$tool.log" | grep -v SUMMARY | grep -Eiq 'invalid|hazard|error|leak|uninit|race'; then
            status=9
        fi
        case $status in
        0) echo "compute-sanitizer $tool: nothing found" ;;
        124) echo "compute-sanitizer $tool: nothing found in $seconds s, then stopped" ;;
        *) grep '^=========' "$build/$tool.log" | head -40 || true
           echo "compute-sanitizer $tool: see $build/$tool.log"; failed=1 ;;
        esac
    done
else
    echo "compute-sanitizer was not found: left out"
fi
exit $failed
