# Sourced by quickstart.sh and test.sh: finds out which programs and libraries are missing and installs them with apt-get
# where that is allowed. Needs are given as short names; a name that ends in ? is welcome but not required.
#
#   suture_packages cc cmake openblas gnuplot?

suture_has() {
    case $1 in
    cc | c++ | cmake | ninja | pkg-config | gnuplot | valgrind) command -v "$1" >/dev/null 2>&1 ;;
    openblas | jansson | cmocka) pkg-config --exists "$1" >/dev/null 2>&1 ;;
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

# Names among the arguments that are not there, one a line, without their question mark.
suture_missing() {
    for need; do
        suture_has "${need%\?}" || echo "${need%\?}"
    done
}

suture_apt() {
    if [ "$(id -u)" -eq 0 ]; then
        set -- apt-get "$@"
    elif command -v sudo >/dev/null 2>&1 && { sudo -n true 2>/dev/null || [ -t 0 ]; }; then
        set -- sudo apt-get "$@"
    else
        return 1
    fi
    DEBIAN_FRONTEND=noninteractive "$@"
}

suture_packages() {
    packages=$(for name in $(suture_missing "$@"); do suture_package_of "$name"; done | sort -u | tr '\n' ' ')
    if [ -n "$packages" ] && command -v apt-get >/dev/null 2>&1; then
        echo "Installing: $packages"
        suture_apt install -y --no-install-recommends $packages >/dev/null 2>&1 ||
            { suture_apt update >/dev/null && suture_apt install -y --no-install-recommends $packages >/dev/null; } ||
            echo "apt-get could not install them."
    fi

    required=''
    for need; do
        name=${need%\?}
        suture_has "$name" && continue
        if [ "$name" = "$need" ]; then
            required="$required $(suture_package_of "$name")"
        else
            echo "Going on without $name (Debian package $(suture_package_of "$name"))."
        fi
    done
    if [ -n "$required" ]; then
        cat >&2 <<END

These Debian packages are missing and could not be installed:$required

    As root:          apt-get install$required
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
