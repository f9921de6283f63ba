#!/bin/sh
# Instructions that an old processor lacks stay in the objects that are chosen at run time. The baseline objects hold no
# VEX or EVEX instruction at all (their names begin with v), the AVX2 objects no 512-bit or mask register; what a wide
# object exports carries its suffix, so that the linker cannot take a wide copy for a plain one.
# usage: isa.sh LIST_OF_BASELINE_OBJECTS LIST_OF_AVX2_OBJECTS LIST_OF_AVX512_OBJECTS   (files, one path a line)
set -u
export LC_ALL=C
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
failed=0 passed=0

pass() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAILED: $*"; }

# instructions OBJECT: "mnemonic operands", one a line
instructions() { objdump -d --no-show-raw-insn "$1" | sed -n 's/^ *[0-9a-f]*:\t//p'; }

avx='^(\{[a-z]*\} )?v[a-z]|%[yz]mm|%k[0-7]'
avx512='%zmm|%k[0-7]|%[xy]mm(1[6-9]|2[0-9]|3[01])'

# The scan itself must be able to see what it looks for.
echo 'void f(float *x); void f(float *x) { for (int i = 0; i < 64; i++) x[i] *= 2; }' >"$work/wide.c"
"${CC:-cc}" -O3 -mavx2 -c "$work/wide.c" -o "$work/wide.o" || fail "compiling a probe"
if instructions "$work/wide.o" | grep -Eq "$avx"; then pass; else fail "the scan does not see AVX2 in a probe"; fi

while read -r object; do
    if instructions "$object" | grep -E "$avx" | head -3 >"$work/hits"; [ -s "$work/hits" ]; then
        fail "$object uses instructions beyond the baseline:"
        cat "$work/hits"
    else
        pass
    fi
done <"$1"

wide() { # wide SUFFIX LIST FORBIDDEN EXPECTED
    while read -r object; do
        instructions "$object" >"$work/code"
        if [ -n "$3" ] && grep -Eq "$3" "$work/code"; then fail "$object goes beyond $1"; else pass; fi
        if grep -Eq "$4" "$work/code"; then pass; else fail "$object was not vectorised for $1"; fi
        nm -g --defined-only "$object" | awk 'NF == 3 {print $3}' | grep -v "_$1\$" >"$work/names"
        if [ -s "$work/names" ]; then fail "$object exports names without _$1: $(tr '\n' ' ' <"$work/names")"; else pass; fi
    done <"$2"
}
wide avx2 "$2" "$avx512" '%ymm'
wide avx512 "$3" '' '%zmm'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
