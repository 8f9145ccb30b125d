#!/usr/bin/env bash
# Instructions of the executor per task, counted by callgrind, and how they grow with N and m.
#   bench/overhead.sh [BUILD]      BUILD: a build folder, made when it is not there; default: build
# A task is one COMPUTE, SEND, RECV or ADD of one tile or message. Exit code 1 when a task costs more than
# twice as much at N = 16, m = 8 as at N = 2, m = 1: then the whole is not linear in the number of tasks.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
most=2

if ! command -v valgrind >/dev/null 2>&1; then
    echo "bench/overhead.sh: valgrind is missing, expected Debian's package 'valgrind'" >&2
    exit 1
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

{ cmake -S "$root" -B "$build" && cmake --build "$build" --target overhead; } >"$folder/log" 2>&1 ||
    { cat "$folder/log" >&2; exit 1; }

# one dump a case, in the order of the lines
if ! valgrind --tool=callgrind --collect-atstart=no --toggle-collect=fo_exec_run \
    --zero-before=overhead_case_begin --dump-after=overhead_case_end \
    --callgrind-out-file="$folder/out" "$build/bench/overhead" >"$folder/cases" 2>"$folder/log"; then
    cat "$folder/log" >&2
    exit 1
fi
number=0
while read -r line; do
    number=$((number + 1))
    echo "$line $(sed -n 's/^\(totals\|summary\): //p' "$folder/out.$number" | head -n 1)"
done <"$folder/cases" >"$folder/counts"

awk -v most="$most" '
{
    # pattern strategy N m messages tasks tiles runs instructions
    split($2, s, ":")
    way = s[1] ", " $1 ", " $5 " message" ($5 > 1 ? "s" : "") " a slice"
    if (!(way in seen)) {
        seen[way] = 1
        order[++ways] = way
    }
    each[way, $3, $4] = $9 / $8 / $7
    tiles[way, $3, $4] = $7
}
END {
    print "Instructions of fo_exec_run per task of one tile or message\n"
    printf "%-34s%6s", "strategy, pattern", "N"
    for (m = 1; m <= 8; m *= 2) printf "%10s", "m = " m
    print "      N=16 m=8 / N=2 m=1"
    for (w = 1; w <= ways; w++) {
        way = order[w]
        ratio = each[way, 16, 8] / each[way, 2, 1]
        for (n = 2; n <= 16; n *= 2) {
            printf "%-34s%6d", n == 2 ? way : "", n
            for (m = 1; m <= 8; m *= 2) printf "%10.0f", each[way, n, m]
            if (n == 16) printf "%12.2f for %.0f times the tasks", ratio, tiles[way, 16, 8] / tiles[way, 2, 1]
            print ""
        }
        if (ratio > most) bad = bad "\n  " way ": " sprintf("%.2f", ratio)
    }
    if (bad) {
        print "\nFAILED: a task costs more than " most " times as much at N = 16, m = 8:" bad
        exit 1
    }
    print "\nAt N = 16, m = 8 no task costs more than " most " times what it costs at N = 2, m = 1."
}' "$folder/counts"
