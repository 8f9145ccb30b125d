#!/usr/bin/env bash
# How far predictions are off, and what choosing by them costs: every operator under every strategy, predicted and
# measured side by side (docs/metrics.md). About a quarter of an hour on a machine that does nothing else.
#   bench/predict.sh [OPTION ...]
#     --build DIR        a build folder, made when it is not there; default: build
#     --program FILE     instead: the program as it is
#     --parts LIST       real: N = 2, computed here over an emulated link; emulated4, emulated8: N = 4, 8 of an
#                        emulated device; default: all three
#     --subjects LIST    row, column, mlp, attention; default: all four
#     --passes LIST      forward, backward; default: both
#     --ratios LIST      transfers, as parts of the computation; default: 0.25,0.5,1,2
#     --repeat N         timed runs of each; default: 9
#     --lines            every prediction, not only the table of what they come to
#     --csv FILE         keep what is measured, to be put together later: --from FILE,FILE does nothing else
# Exit code 1 when a figure misses what is wanted: median error 3 %, 95th percentile 8 %, the strategy chosen the best
# or within 2 % of it in 95 % of the cases, regret 5 % at most.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build
program=
parts=real,emulated4,emulated8
subjects=row,column,mlp,attention
passes=forward,backward
ratios=0.25,0.5,1,2
repeat=9
csv=
from=
lines=
while [ $# -gt 0 ]; do
    case $1 in
    --build | --program | --parts | --subjects | --passes | --ratios | --repeat | --csv | --from)
        [ $# -gt 1 ] || { echo "bench/predict.sh: $1 needs a value" >&2; exit 2; }
        declare "${1#--}=$2"
        shift 2 ;;
    --lines)
        lines=1
        shift ;;
    *)
        echo "bench/predict.sh: '$1' is unknown; the head of the script lists the options" >&2
        exit 2 ;;
    esac
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
all=${csv:-$folder/all}
: >"$all"

if [ -z "$from$program" ]; then
    program=$build/flashoverlap
    { cmake -S "$root" -B "$build" && cmake --build "$build" --target flashoverlap_cli; } >"$folder/log" 2>&1 ||
        { cat "$folder/log" >&2; exit 1; }
fi

export FLASHOVERLAP_BIND=1 # two ranks that share a core for a while measure something else

# Every strategy of an operator as it is meant to run, or in its other form.
strategies() # suffix
{
    local list='' name
    for name in none slice:2 slice:4 slice:8 ring flash flash:2 direct; do
        list=$list,$name$1
    done
    echo "${list#,}"
}

# The other form an operator has, if any: its parts one by one, attention before its projection.
other_form() # subject pass
{
    case $1-$2 in
    mlp-* | column-backward) echo +apart ;;
    attention-*) echo +row ;;
    esac
}

sizes() # part subject
{
    case $1-$2 in
    real-*) echo --batch 4 --context 512 --dim 768 --ffn 1536 --heads 12 --threads 1 --ranks 2 ;;
    emulated4-*) echo --batch 16 --context 2048 --dim 4096 --heads 32 --threads 1 --ranks 4 ;;
    emulated8-*) echo --batch 16 --context 2048 --dim 4096 --heads 32 --threads 1 --ranks 8 ;;
    esac
}

# Thin slices compute less efficiently, and every slice begins with a launch.
device=30ms,launch=10us,mem=1.5TB/s,curve=64:0.33/256:0.78/1024:0.9/8192:1

measure() # part subject pass ratio suffix
{
    local words
    read -ra words <<<"$(sizes "$1" "$2")"
    words+=(--link "auto:$4,2us" --repeat "$repeat" --overlap "$(strategies "$5")" --csv)
    [ "$3" = forward ] || words+=(--backward)
    [ "$1" = real ] || words+=(--emulate "$device")
    "$program" bench "$2" "${words[@]}" >"$folder/out" 2>"$folder/log" ||
        { echo "bench $2 ${words[*]}" >&2; cat "$folder/log" >&2; exit 1; }
    awk -v part="$1" -v pass="$3" -v ratio="$4" -v form="$5" '
        NR == 1 { for (i = 1; i <= split($0, name, ","); i++) column[name[i]] = i; next }
        { gsub(/"[^"]*"/, ""); split($0, f, ",")
          sub(/\+.*/, "", f[column["overlap"]])
          print part, f[column["subject"]], pass (form == "" ? "+whole" : form), ratio, f[column["overlap"]],
              f[column["predicted_ms"]], f[column["t_ms"]], f[column["t_p10_ms"]], f[column["t_p90_ms"]],
              f[column["predicted_compute_ms"]], f[column["compute_ms"]] }' "$folder/out" >>"$all"
}

if [ -n "$from" ]; then
    for file in ${from//,/ }; do
        cat "$file" >>"$all"
    done
else
    for part in ${parts//,/ }; do
        for subject in ${subjects//,/ }; do
            for pass in ${passes//,/ }; do
                for ratio in ${ratios//,/ }; do
                    measure "$part" "$subject" "$pass" "$ratio" ""
                    other=$(other_form "$subject" "$pass")
                    [ -z "$other" ] || measure "$part" "$subject" "$pass" "$ratio" "$other"
                done
            done
        done
    done
fi
awk -v lines="$lines" -f "$root/bench/predict.awk" "$all"
