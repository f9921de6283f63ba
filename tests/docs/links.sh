#!/bin/sh
# Every link in the documents that points into the repository points at something.
# usage: links.sh SOURCE_DIR
set -u
cd "$1" || exit 1
failed=0 passed=0
for page in *.md docs/*.md; do
    for target in $(sed 's/`[^`]*`//g' "$page" | grep -o '](\([^)]*\))' | sed 's/](\(.*\))/\1/; s/#.*//' | grep -v '^[a-z]*:'); do
        if [ -e "$(dirname "$page")/$target" ]; then
            passed=$((passed + 1))
        else
            failed=$((failed + 1))
            echo "FAILED: $page links to $target"
        fi
    done
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
