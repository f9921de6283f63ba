#!/bin/sh
# Usage: malformed.sh RUNNER KEY SCHEMA LIST [FIELDS]
# A golden runner that meets a damaged file must end with a code that is not 0 and a sentence on stderr that names the file,
# and not by a signal. KEY is the field that holds the SCHEMA, LIST the one that holds the cases,
# FIELDS what else must be there, such as '"parameters": {}, '.
set -u
runner=$1 key=$2 schema=$3 list=$4 fields=${5-}
directory=$(mktemp -d) || exit 1
trap 'rm -rf "$directory"' EXIT
file=$directory/damaged.json
failed=0

# expect TEXT: what stderr must hold; the file is as the caller left it.
expect() {
    "$runner" "$file" >"$directory/out" 2>"$directory/err"
    code=$?
    if [ $code -eq 0 ] || [ $code -ge 126 ] || ! grep -q -F -e "$1" "$directory/err"; then
        echo "exit code $code, expected '$1' on stderr, for: $(head -c 200 "$file" 2>/dev/null)"
        cat "$directory/err"
        failed=1
    fi
}
# holds JSON TEXT
holds() {
    printf '%s' "$1" >"$file"
    expect "$2"
}

expect "unable to open $file"
grep -q 'line -1' "$directory/err" && echo "there is no line -1" && failed=1
holds '' "$file"
holds '{' "$file: line 1"
holds '[]' "$file: the file does not hold an object"
holds '3' "$file"
holds '{}' "the field \"$key\" is missing"
holds "{\"$key\": 3}" "the field \"$key\" is not a text"
holds "{\"$key\": \"something\"}" "something"
holds "{\"$key\": \"$schema\", ${fields}\"x\": 0}" "the field \"$list\" is missing"
for value in 0.5 null true '"x"' '{}'; do
    holds "{\"$key\": \"$schema\", $fields\"$list\": $value}" "the field \"$list\" is not an array"
done
holds "{\"$key\": \"$schema\", $fields\"$list\": []}" "the files hold no case"
for value in 0.5 null '"x"' '[]' '{}'; do
    holds "{\"$key\": \"$schema\", $fields\"$list\": [$value]}" "$file"
done
exit $failed
