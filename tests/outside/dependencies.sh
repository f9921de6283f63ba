#!/bin/sh
# The library needs neither Jansson nor cmocka: it configures where pkg-config does not know them, and nothing in it asks for
# a function of theirs. Examples and tests do need them, and say so.
# usage: dependencies.sh SOURCE_DIR CMAKE C_COMPILER PKG_CONFIG STATIC_LIBRARY
set -u
source=$1 cmake=$2 cc=$3 library=$5
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0

cat >"$work/pkg-config" <<EOF
#!/bin/sh
case "\$*" in *jansson* | *cmocka*) exit 1 ;; esac
exec "$4" "\$@"
EOF
chmod +x "$work/pkg-config"

# configure NAME OPTION...: into $work/NAME, with what it said in $work/NAME.log.
configure() {
    name=$1
    shift
    "$cmake" -S "$source" -B "$work/$name" -DCMAKE_C_COMPILER="$cc" -DPKG_CONFIG_EXECUTABLE="$work/pkg-config" \
        -DSUTURE_BUILD_BENCH=OFF "$@" >"$work/$name.log" 2>&1
}

fail() {
    echo "FAILED: $1"
    sed 's/^/    /' "$2"
    failed=1
}

configure library -DSUTURE_BUILD_EXAMPLES=OFF -DSUTURE_BUILD_TESTS=OFF || fail "the library alone" "$work/library.log"
grep -i -e jansson -e cmocka -r "$work/library/cmake" >"$work/found" 2>/dev/null &&
    fail "what would be installed names Jansson or cmocka" "$work/found"
for part in EXAMPLES TESTS; do
    configure $part -DSUTURE_BUILD_EXAMPLES=OFF -DSUTURE_BUILD_TESTS=OFF -DSUTURE_BUILD_$part=ON &&
        fail "$part without Jansson are not refused" "$work/$part.log"
    grep -q "Jansson" "$work/$part.log" || fail "$part: the refusal does not name Jansson" "$work/$part.log"
done
nm -u "$library" 2>/dev/null | grep -w -E 'U _?json_[a-z_]+' >"$work/symbols" &&
    fail "the library calls Jansson" "$work/symbols"
exit $failed
