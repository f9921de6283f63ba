#!/bin/sh
# Installs what is missing, builds Suture, and trains a physics-informed network on the Burgers equation with steps that
# hurt none of its losses. Leaves metrics.json, history.csv, a checkpoint and pictures in out/ (or the directory given).
# usage: ./quickstart.sh [OUT_DIR]
set -eu
case ${1-} in
-*)
    sed -n '2,4s/^# //p' "$0"
    [ "$1" = -h ] || [ "$1" = --help ] || exit 2
    exit 0
    ;;
esac
case ${1-} in /*) out=$1 ;; *) out=$PWD/${1-out} ;; esac
cd "$(dirname "$0")"
. cmake/packages.sh

suture_packages cc cmake pkg-config openblas jansson ninja? gnuplot?

cmake --preset release -DSUTURE_BUILD_TESTS=OFF
cmake --build --preset release --parallel "$(suture_jobs)" --target suture-pinn

build/release/bin/suture-pinn burgers --preset quick --surgery config --align gua --out "$out"

echo
echo "Everything about this run is in $out:"
ls "$out"
