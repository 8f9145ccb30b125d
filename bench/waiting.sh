#!/usr/bin/env bash
# More ranks than cores: 16 ranks under every strategy run, are verified, give the same bits, and leave the
# processor to others while they wait.
#   bench/waiting.sh [BUILD [RANKS [SECONDS]]]     BUILD: a build folder; default: build
# Exit code 1 when something fails, bits differ or all waiting ranks together use 5 % of a core or more.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
ranks=${2:-16}
seconds=${3:-2}
strategies=none,slice:4,ring,flash,flash:2,direct
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0

{ cmake -S "$root" -B "$build" && cmake --build "$build" --target flashoverlap_cli waiting; } >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }

# 1000 rows and 160 features do not divide by 16 and 64
check_bits() # kernel layer
{
    local words=(bench "$2" --ranks "$ranks" --threads 1 --transport shm --kernel "$1" --rows 1000 --dim 96
        --ffn 160 --repeat 2 --overlap "$strategies" --json)
    local equal
    if ! "$build/flashoverlap" "${words[@]}" >"$log" 2>&1; then
        tail -n 3 "$log"
        code=1
        return
    fi
    equal=$(grep -o '"bitwise_equal": true' "$log" | wc -l)
    printf '%-8s %-8s %s of 6 strategies verified, run, bits equal\n' "$1" "$2" "$equal"
    [ "$equal" -eq 6 ] || code=1
}

echo "$ranks ranks over shared memory on $(nproc) cores: $strategies"
for kernel in ref onednn; do
    for layer in row column; do
        check_bits "$kernel" "$layer"
    done
done
echo
"$build/bench/waiting" "$ranks" "$seconds" || code=1
exit "$code"
