#!/bin/sh
# The Python package as a user gets it: a new virtual environment, `pip install .` of this tree, then its tests with PyTorch,
# JAX, optax, TorchJD and conflictfree beside it, and the CUDA back end as the CPU executes it. Peers that cannot be had are left out by name; their tests are skipped.
# Ends with "N passed, N failed". Exit status 77 (skipped, with the reason): no Python 3.10 or later, or no packages.
# usage: tests/python.sh [WORK_DIR] [pytest arguments ...]      (default: build/python)
set -u
root=$(cd "$(dirname "$0")/.." && pwd) || exit 1
work=${1:-$root/build/python}
[ $# -gt 0 ] && shift
python=${PYTHON:-python3}

skip() {
    echo "skipped: $*"
    exit 77
}

"$python" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null ||
    skip "$python is not a Python 3.10 or later that can make virtual environments (on Debian: apt-get install python3-venv)"
mkdir -p "$work" || exit 1
work=$(cd "$work" && pwd)
venv=$work/venv
[ -x "$venv/bin/python" ] || "$python" -m venv "$venv" || skip "no virtual environment could be made in $venv"
pip() { "$venv/bin/python" -m pip --quiet --disable-pip-version-check "$@"; }

echo "== packages"
pip install "scikit-build-core>=0.10" "nanobind>=2.4" "numpy>=1.24" pytest >"$work/packages.log" 2>&1 ||
    skip "the packages to build and test with cannot be had: $(tail -1 "$work/packages.log")"
command -v cmake >/dev/null 2>&1 || pip install cmake >>"$work/packages.log" 2>&1 || skip "CMake is not there"
command -v ninja >/dev/null 2>&1 || pip install ninja >>"$work/packages.log" 2>&1
# A PyTorch for CPUs alone, from a directory of wheels that pip knows of, is a tenth of the usual one.
pip install --no-index --no-deps torch >>"$work/packages.log" 2>&1
for peer in torch "jax optax" "torchjd[full]" conflictfree mypy tensorboard matplotlib; do
    # A constraint keeps what is there: a peer must not replace NumPy or PyTorch under the others.
    # shellcheck disable=SC2086
    pip install $peer >>"$work/packages.log" 2>&1 || echo "left out, not to be had: $peer"
done

# Tests on all processors at once, where that package is to be had.
side_by_side=
pip install pytest-xdist >>"$work/packages.log" 2>&1 && side_by_side="-n $(nproc)"

echo "== pip install ."
# Without isolation the packages from above build it; the build tree stays in the work directory, so a second run is quick.
PATH="$venv/bin:$PATH" pip install --no-build-isolation --no-deps --force-reinstall \
    --config-settings=build-dir="$work/wheel" "$root" >"$work/install.log" 2>&1 || {
    cat "$work/install.log"
    echo "FAILED: pip install ."
    echo "0 passed, 1 failed"
    exit 1
}
"$venv/bin/python" -c 'import suture; print(suture.diagnose())' || exit 1

echo "== a GPU to test with"
# The CUDA back end as the CPU executes it (tests/cuda/exec), from the tree that the library's own tests are built in where
# there is one. Without it the tests of tensors on a GPU are skipped by name.
standin=
for tree in "$root/build/release" "$work/exec"; do
    [ "$tree" != "$work/exec" ] || cmake -S "$root" -B "$tree" -DCMAKE_BUILD_TYPE=Release -DSUTURE_BUILD_TESTS=ON \
        >"$work/exec.log" 2>&1 || break
    [ -f "$tree/CMakeCache.txt" ] || continue
    cmake --build "$tree" --target suture_cuda_exec --parallel "$(nproc)" >"$work/exec.log" 2>&1 || continue
    standin=$(find "$tree/cuda" -name 'libsuture_cuda.so.[0-9]' | head -1)
    [ -z "$standin" ] || break
done
[ -n "$standin" ] && echo "$standin" || echo "left out, not to be had: $(tail -1 "$work/exec.log")"

echo "== tests"
cd "$work" || exit 1
# Small processes on a busy machine: one thread for what is not ours.
# shellcheck disable=SC2086
OMP_NUM_THREADS=${OMP_NUM_THREADS:-1} SUTURE_CUDA_STANDIN=$standin "$venv/bin/python" -m pytest -q -rs $side_by_side \
    -p no:cacheprovider --junitxml="$work/report.xml" -c "$root/pyproject.toml" --rootdir "$root" \
    "$root/bindings/python/tests" "$@"
status=$?
"$venv/bin/python" - "$work/report.xml" <<'EOF'
import sys
import xml.etree.ElementTree as tree

suite = tree.parse(sys.argv[1]).getroot().find("testsuite")
count = {k: int(suite.get(k)) for k in ("tests", "failures", "errors", "skipped")}
failed = count["failures"] + count["errors"]
if count["skipped"]:
    print(f"{count['skipped']} skipped")
print(f"{count['tests'] - failed - count['skipped']} passed, {failed} failed")
EOF
exit $status
