#!/usr/bin/env bash
# Operators over links of a stated rate, two hosts on one machine (tools/netlab.sh): flash against its rivals, the
# library's own collectives after the computation (library) and in k chunks behind it (library:k), and ours (none,
# slice:k). Needs root; a core for each of the two ranks, and nothing else running.
#   bench/netlab.sh [--program FILE] [--mpi LIST] [--rates LIST] [--subjects LIST] [--dtypes LIST] [--ffn LIST]
#                   [--rows N] [--dim N] [--repeat N] [--passes LIST] [--csv FILE]
# Prints a line a case: transfer (what the bytes need at the rate) over computation, times, which is fastest, how much
# flash hides (docs/metrics.md), and whether both are as promised: flash fastest where the transfer is at least 0.1
# of the computation; at least 90 % hidden where it is at most 0.6. Exit code 1 when a case is not. --csv keeps what
# `flashoverlap bench` printed, with library and rate before each line.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
program=$root/build/flashoverlap mpi=openmpi,mpich rates=1gbit,2gbit subjects=row,column,mlp dtypes=f32,bf16
ffn=2048,4096,8192 rows=2048 dim=1024 repeat=11 passes=forward,backward csv=''
rivals=none,library,library:2,library:4,library:8,slice:2,slice:4,slice:8

stop() # code sentence
{
    echo "bench/netlab.sh: $2" >&2
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --program | --mpi | --rates | --subjects | --dtypes | --ffn | --rows | --dim | --repeat | --passes | --csv)
        [ $# -gt 1 ] || stop 2 "$1 needs a value"
        declare "${1#--}=$2"
        shift 2
        ;;
    *) stop 2 "'$1' is unknown; the first lines of this script say what there is" ;;
    esac
done
[ -x "$program" ] || stop 2 "there is no program $program, expected --program FILE"
program=$(realpath "$program")
"$root/tools/netlab.sh" ps >/dev/null || exit $?
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# measure MPI RATE SUBJECT PASS DTYPE FFN: lines of CSV behind library and rate
measure()
{
    local strategies=$rivals,flash words=() code=0
    [ "$4" = forward ] || words=(--backward)
    # of the whole MLP the library has no collective: an operator at a time
    [ "$3" != mlp ] || strategies=$(sed -E 's/(library(:[0-9]+)?)/\1+apart/g' <<<"$strategies")
    timeout 120 "$root/tools/netlab.sh" --mpi "$1" --rate "$2" -- "$program" bench "$3" --rows "$rows" --dim "$dim" --ffn "$6" \
        --dtype "$5" --wire "$5" --threads 1 --overlap "$strategies" --repeat "$repeat" --csv "${words[@]}" \
        >"$work/out" 2>"$work/err" </dev/null || code=$?
    if [ $code -ne 0 ]; then
        echo "$*: exit code $code: $(tail -n 1 "$work/err")" >&2
        echo failed >>"$work/failed"
        return
    fi
    grep -qs '^mpi,rate,' "$work/csv" || grep '^subject,' "$work/out" | sed 's/^/mpi,rate,ffn,/' >"$work/csv"
    grep "^$3," "$work/out" | sed "s/^/$1,$2,$6,/" >>"$work/csv"
}

# The table of what has been measured. A case is what the CSV has from mpi to wire.
table()
{
    awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    {
        key = $1 FS $2 FS $3 FS $at["subject"] FS $at["backward"] FS $at["dtype"]
        if (!(key in seen)) { seen[key] = 1; order[++cases] = key }
        rate = $2 + 0; if ($2 ~ /gbit/) rate *= 1e9; else if ($2 ~ /mbit/) rate *= 1e6
        ratio[key] = rate > 0 ? $at["wire_bytes"] * 8e3 / rate / $at["compute_ms"] : 0
        compute[key] = $at["compute_ms"]
        name = $at["overlap"]; time = $at["t_ms"]
        if (time == "") next
        if (name == "flash") { flash[key] = time; hidden[key] = $at["hidden_pct"] }
        kind = name; sub(/[:+].*/, "", kind)
        if (!((key, kind) in best) || time + 0 < best[key, kind] + 0) best[key, kind] = time
        if (name != "flash" && (!(key in rival) || time + 0 < rival[key] + 0)) { rival[key] = time; whose[key] = name }
        # a library adds in an order and a precision of its own
        if (kind != "library" && $at["bitwise_equal"] == "false") differ[key] = 1
    }
    END {
        printf "%-8s%-6s%-7s%-9s%-5s%6s %9s%9s | %8s%8s%8s%8s | %-14s%8s  %s\n", "mpi", "rate", "what", "pass", "type",
            "ffn", "transfer", "compute", "none", "library", "slice", "flash", "best rival", "hidden", "verdict"
        for (i = 1; i <= cases; i++) {
            key = order[i]; split(key, k, FS)
            verdict = "as promised"
            if (!(key in flash)) verdict = "FAILED: no time of flash"
            else if (ratio[key] >= 0.1 && flash[key] + 0 > rival[key] + 0) verdict = "FAILED: " whose[key] " is faster"
            else if (ratio[key] <= 0.6 && ratio[key] >= 0.1 && hidden[key] != "" && hidden[key] < 90)
                verdict = "FAILED: less than 90 % hidden"
            if (key in differ) verdict = "FAILED: bits differ"
            if (verdict ~ /^FAILED/) bad++
            printf "%-8s%-6s%-7s%-9s%-5s%6d %8.2fx%9.1f | %8.1f%8.1f%8.1f%8.1f | %-14s%7s%%  %s\n", k[1], k[2], k[4],
                k[5] == "true" ? "backward" : "forward", k[6], k[3], ratio[key], compute[key], best[key, "none"],
                best[key, "library"], best[key, "slice"], flash[key], whose[key],
                hidden[key] == "" ? "-" : sprintf("%.0f", hidden[key]), verdict
        }
        printf "\n%d of %d cases as promised. Times in ms, medians; of library and slice the best k.\n", cases - bad, cases
        exit bad > 0
    }' "$work/csv"
}

for library in ${mpi//,/ }; do
    for rate in ${rates//,/ }; do
        for subject in ${subjects//,/ }; do
            for pass in ${passes//,/ }; do
                for dtype in ${dtypes//,/ }; do
                    for hidden in ${ffn//,/ }; do
                        measure "$library" "$rate" "$subject" "$pass" "$dtype" "$hidden"
                    done
                done
            done
        done
    done
done
[ -s "$work/csv" ] || stop 1 "nothing could be measured"
[ -z "$csv" ] || cp "$work/csv" "$csv"
code=0
table || code=1
[ ! -s "$work/failed" ] || stop 1 "$(wc -l <"$work/failed") cases did not run"
exit $code
