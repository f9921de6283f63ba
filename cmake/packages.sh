# Sourced by quickstart.sh and test.sh: finds out which programs and libraries are missing and installs them with apt-get
# where that is allowed. Needs are given as short names; a name that ends in ? is welcome but not required.
#
#   suture_packages cc cmake openblas gnuplot?

suture_has() {
    case $1 in
    cc | c++ | cmake | ninja | pkg-config | gnuplot | valgrind) command -v "$1" >/dev/null 2>&1 ;;
    openblas | jansson | cmocka) pkg-config --exists "$1" >/dev/null 2>&1 ;;
    python3-venv) python3 -c 'import venv, ensurepip' >/dev/null 2>&1 ;;
    python3-dev)
        python3 -c 'import os, sys, sysconfig
sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' >/dev/null 2>&1
        ;;
    esac
}

suture_package_of() {
    case $1 in
    cc | c++) echo build-essential ;;
    ninja) echo ninja-build ;;
    openblas | jansson | cmocka) echo "lib$1-dev" ;;
    gnuplot) echo gnuplot-nox ;;
    *) echo "$1" ;;
    esac
}

# Debian packages of those names that are not there, each once.
suture_missing() {
    for name; do
        suture_has "$name" || suture_package_of "$name"
    done | sort -u | tr '\n' ' '
}

suture_apt() {
    if [ "$(id -u)" -eq 0 ]; then
        set -- apt-get "$@"
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        set -- sudo apt-get "$@"
    else
        return 1
    fi
    DEBIAN_FRONTEND=noninteractive "$@" >/dev/null
}

# Package lists may be old or empty: the first failure brings them up to date.
suture_install() {
    [ $# -gt 0 ] && command -v apt-get >/dev/null 2>&1 || return 0
    echo "Installing: $*"
    suture_apt install -y --no-install-recommends "$@" 2>/dev/null ||
        { suture_apt update && suture_apt install -y --no-install-recommends "$@"; } ||
        echo "apt-get could not install: $*"
}

suture_packages() {
    needed='' welcome=''
    for need; do
        case $need in
        *\?) welcome="$welcome ${need%?}" ;;
        *) needed="$needed $need" ;;
        esac
    done
    # In two goes, so that a package which is merely welcome cannot keep out one that is needed.
    suture_install $(suture_missing $needed)
    suture_install $(suture_missing $welcome)

    for name in $welcome; do
        suture_has "$name" || echo "Going on without $name (Debian package $(suture_package_of "$name"))."
    done
    required=$(suture_missing $needed)
    if [ -n "$required" ]; then
        cat >&2 <<END

These Debian packages are missing and could not be installed: $required

    As root:          apt-get install $required
    Without root:     ask for them, or build those projects under a prefix of your own and let
                      PATH, PKG_CONFIG_PATH=<prefix>/lib/pkgconfig and LD_LIBRARY_PATH=<prefix>/lib name it.
    Other systems:    the same programs and libraries under that system's names.

Then run $0 again. The library alone needs a C compiler, CMake, pkg-config, OpenBLAS and Jansson:
    cmake -S . -B build/library -DSUTURE_BUILD_TESTS=OFF -DSUTURE_BUILD_EXAMPLES=OFF -DSUTURE_BUILD_BENCH=OFF
    cmake --build build/library
END
        return 1
    fi

    version=$(cmake --version | sed -n '1s/[^0-9]*//p')
    case $version in
    3.[0-9] | 3.[0-9].* | 3.1[0-9]* | 3.2[0-3]*)
        echo "CMake $version is too old: 3.24 or later is needed. Put a newer one first in PATH and run $0 again." >&2
        return 1
        ;;
    esac
    # A build tree that exists keeps the generator that it was made with.
    if command -v ninja >/dev/null 2>&1; then
        export CMAKE_GENERATOR="${CMAKE_GENERATOR:-Ninja}"
    fi
}

suture_jobs() { nproc 2>/dev/null || echo 2; }
