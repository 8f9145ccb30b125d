# shellcheck shell=bash
# What the command line tests share. Source it with the test's own arguments: program, source folder.
program=$1
source_folder=$2
work=$(mktemp -d)
failures=0
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME=$work/cache # profiles and wisdom of this machine: neither used nor changed
unset FLASHOVERLAP_PROFILE FLASHOVERLAP_PREDICT

fail()
{
    printf 'FAILED: %s\n' "$*"
    failures=$((failures + 1))
}

# run WORDS...: runs the program; out, err and code hold what came of it.
run()
{
    command_line="flashoverlap $*"
    code=0
    "$program" "$@" >"$work/.out" 2>"$work/.err" </dev/null || code=$?
    out=$(<"$work/.out")
    err=$(<"$work/.err")
}

expect_code()
{
    [ "$code" -eq "$1" ] || fail "$command_line: exit code $code, expected $1; it said: ${err:-$out}"
}

# expect_error CODE SENTENCE...: the code, one line on standard error and each text in it.
expect_error()
{
    local wanted=$1
    shift
    expect_code "$wanted"
    [ "$(wc -l <"$work/.err")" -eq 1 ] || fail "$command_line: expected one line of error, found: $err"
    for text in "$@"; do
        [[ "$err" == *"$text"* ]] || fail "$command_line: expected '$text' in: $err"
    done
}

expect_out()
{
    for text in "$@"; do
        [[ "$out" == *"$text"* ]] || fail "$command_line: expected '$text' in: $out"
    done
}

expect_file()
{
    [ -s "$1" ] || fail "$command_line: expected a file $1"
}

expect_same() # what a b
{
    [ "$2" = "$3" ] || fail "$1: '$2' and '$3' differ"
}

# number NAME: values of a key in the JSON lines of standard input, one a line.
number()
{
    sed -nE 's/.*"'"$1"'": ([-+0-9.eE]+|null|true|false).*/\1/p'
}

# valid JSON on standard input? Without python3 nothing is known.
valid_json()
{
    ! command -v python3 >/dev/null || python3 -c 'import json, sys; json.load(sys.stdin)' 2>/dev/null
}

# A text that can be learned from: sentences with a pattern, never the same twice.
make_text() # file lines
{
    awk -v n="$2" 'BEGIN { for (i = 1; i <= n; i++)
        printf "the %d little boats of %d fishermen went %s the sea.\n", i, i * 7 % 100,
            i % 3 ? "out to" : "home from" }' >"$1"
}

finish()
{
    if [ $failures -gt 0 ]; then
        echo "$failures failed"
        exit 1
    fi
    echo "all as expected"
}
