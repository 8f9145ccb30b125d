#!/usr/bin/env bash
# What predicting and planning cost on one core: against ranks, and against layers. Nothing may grow faster than that.
#   bench/planning.sh [BUILD]      BUILD: a build folder, made when it is not there; default: build
# Exit code 1 when a step of 4,096 ranks takes 2 s or 1 GiB, a plan for 1,024 ranks 10 s, or when eight times as many
# ranks or layers take more than eight times as long (beyond a second).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
log=$(mktemp)
trap 'rm -f "$log" "$log.json"' EXIT
{ cmake -S "$root" -B "$build" && cmake --build "$build" --target flashoverlap_cli; } >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
command -v /usr/bin/time >/dev/null || { echo "bench/planning.sh: needs /usr/bin/time (tools/setup.sh bench)" >&2; exit 2; }

failed=0
fail() { echo "bench/planning.sh: $1" >&2; failed=1; }
less() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a < b) }'; }

# Seconds and MB of a command: the best of three, whatever else the machine does.
seconds= megabytes=
cost()
{
    seconds=
    for _ in 1 2 3; do
        taskset -c 0 /usr/bin/time -f '%e %M' -o "$log" "$build/flashoverlap" "$@" --json >"$log.json" ||
            { echo "flashoverlap $*" >&2; exit 1; }
        local now most
        read -r now most <"$log"
        if [ -z "$seconds" ] || less "$now" "$seconds"; then
            seconds=$now
        fi
        megabytes=$((most / 1024))
    done
}

row() { printf '%-52s %8s %8s %9.2f %7d\n' "$1" "$2" "$3" "$seconds" "$megabytes"; }
printf '%-52s %8s %8s %9s %7s\n' '' ranks layers seconds MB

step() { cost simulate step --machine h100-sxm-ndr --batch 4096 "$@"; }
for dp in 4 8 16 32 64; do
    step --model llama3-405b --tp 8 --dp $dp --pp 16
    row "step of llama3-405b, tp 8, pp 16" $((8 * dp * 16)) 126
    [ $dp = 32 ] || continue
    less "$seconds" 2 || fail "a step of 4,096 ranks took $seconds s, wanted: less than 2"
    [ "$megabytes" -lt 1024 ] || fail "a step of 4,096 ranks took $megabytes MB, wanted: less than 1024"
done
for layers in 64 128 256 512; do
    step --model llama3-70b --layers $layers --tp 8 --dp 8 --pp 16
    row "step of llama3-70b with more layers, tp 8, pp 16" 1024 $layers
done
first=
for ranks in 128 256 512 1024 2048 4096; do
    cost plan --model llama3-70b --machine h100-sxm-ndr --ranks $ranks --batch 4096
    row "plan of llama3-70b" $ranks 80
    first=${first:-$seconds}
    [ $ranks != 1024 ] || less "$seconds" 10 || fail "a plan for 1,024 ranks took $seconds s, wanted: less than 10"
    [ $ranks != 1024 ] || less "$seconds" "$(awk -v f="$first" 'BEGIN { print 1 + 8 * f }')" ||
        fail "a plan for 1,024 ranks took $seconds s, for 128 ranks $first s"
done
first=
for layers in 40 80 160 320; do
    cost plan --model llama3-70b --layers $layers --machine h100-sxm-ndr --ranks 512 --batch 1024
    row "plan of llama3-70b with more layers" 512 $layers
    first=${first:-$seconds}
    less "$seconds" "$(awk -v f="$first" -v l=$layers 'BEGIN { print 1 + l / 40 * f }')" ||
        fail "a plan for $layers layers took $seconds s, for 40 layers $first s"
done
for ranks in 16 64 256; do
    cost simulate mlp --machine h100-sxm --ranks $ranks --rows 65536 --dim 8192 --slow-rank 1:0.9 --overlap flash
    row "an mlp, every rank by itself (one is slow)" $ranks 1
done
exit $failed
