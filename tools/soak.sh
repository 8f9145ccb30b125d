#!/usr/bin/env bash
# Many short runs one after another: does each end well, and are the losses the same bits every time?
#   tools/soak.sh [--program FILE] [--runs K] [--transports LIST] [--ranks LIST] [--logs DIR]
#   --runs        200    of each transport, over the numbers of ranks in turn
#   --transports  shm,openmpi,mpich
#   --ranks       2,3,4
#   --lab                MPI jobs in a network of their own (tools/netlab.sh)
# The first run of each number of ranks, over shm, is what all others are compared with. Prints a table; exit code 1
# when a run failed, differed, or left something behind.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=/dev/null
. "$here/../tests/fault/leftovers.sh"

program=$here/../build/flashoverlap runs=200 transports=shm,openmpi,mpich ranks_list=2,3,4 logs=soak.logs lab=''
bound=60 # s, for one run
model=(--layers 2 --heads 4 --dim 48 --context 32 --batch 6 --steps 6)

stop() # code sentence
{
    echo "tools/soak.sh: $2" >&2
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --program | --runs | --transports | --ranks | --logs)
        [ $# -gt 1 ] || stop 2 "$1 needs a value"
        ;;&
    --program) program=$2 && shift 2 ;;
    --runs) runs=$2 && shift 2 ;;
    --transports) transports=$2 && shift 2 ;;
    --ranks) ranks_list=$2 && shift 2 ;;
    --logs) logs=$2 && shift 2 ;;
    --lab) lab=1 && shift ;;
    *) stop 2 "'$1' is unknown; the first lines of this script say what there is" ;;
    esac
done
[ -x "$program" ] || stop 2 "there is no program $program, expected --program FILE"
program=$(realpath "$program")
IFS=, read -ra rank_counts <<<"$ranks_list"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'BEGIN { for (i = 1; i <= 2000; i++) printf "the %d little boats of %d fishermen went %s the sea.\n", i,
    i * 7 % 100, i % 3 ? "out to" : "home from" }' >"$work/text"
train=("$program" train --data "$work/text" "${model[@]}" --eval-every 0 --threads 1 --quiet)

# losses FILE: of every step, as the log has them, in all their digits
losses()
{
    grep -oE '"(step|loss|grad_norm)": [-+0-9.eE]+' "$1" || true
}

# one_run TRANSPORT RANKS: code; log, stdout and stderr in $run
one_run()
{
    local command=("${train[@]}" --log "$run/log")
    case $1 in
    shm) command+=(--ranks "$2") ;;
    *)
        if [ -n "$lab" ]; then
            command=("$here/netlab.sh" --mpi "$1" --hosts "$2" --rate off -- "${command[@]}")
        elif [ "$1" = openmpi ]; then
            command=(mpirun.openmpi --allow-run-as-root --oversubscribe -np "$2" "${command[@]}")
        else
            command=(mpiexec.mpich -n "$2" "${command[@]}")
        fi
        ;;
    esac
    rm -rf "$run" && mkdir -p "$run/tmp"
    printf '%q ' "${command[@]}" >"$run/command"
    code=0
    FO_TEST_TAG=$tag TMPDIR=$run/tmp timeout -k 5 $bound "${command[@]}" >"$run/stdout" 2>"$run/stderr" \
        </dev/null || code=$?
}

# What is wrong with the run; nothing when all is well.
verdict() # transport ranks
{
    local left
    if [ "$code" -ne 0 ]; then
        [ "$code" -ne 124 ] || echo "did not end within $bound s"
        echo "exit code $code: $(tail -n 1 "$run/stderr")"
        return
    fi
    losses "$run/log" | cmp -s - "$work/expected-$2" || echo "losses differ from those of shm with $2 ranks"
    left=$(tagged "$tag")
    [ -z "$left" ] || sleep 1
    left=$(tagged "$tag")
    [ -z "$left" ] || echo "processes are left: $left"
    left=$(find "$run/tmp" -type f | paste -sd' ' -)
    [ -z "$left" ] || echo "files of the launcher are left: $left"
    left=$(new_segments "$work/segments" | paste -sd' ' -)
    [ -z "$left" ] || echo "shared segments are left: $left"
}

run=$work/run
segments >"$work/segments"
for ranks in "${rank_counts[@]}"; do
    tag=$$-expected
    one_run shm "$ranks"
    [ "$code" -eq 0 ] || stop 1 "training does not work at all: $(tail -n 1 "$run/stderr")"
    losses "$run/log" >"$work/expected-$ranks"
    [ -s "$work/expected-$ranks" ] || stop 1 "the log has no losses: $(head -n 1 "$run/log")"
done

failures=0
for transport in ${transports//,/ }; do
    case $transport in
    openmpi) command -v mpirun.openmpi >/dev/null || { echo "openmpi   skipped: no Open MPI" && continue; } ;;
    mpich) command -v mpiexec.mpich >/dev/null || { echo "mpich     skipped: no MPICH" && continue; } ;;
    esac
    failed=0 begin=$(date +%s)
    for ((i = 0; i < runs; i++)); do
        ranks=${rank_counts[i % ${#rank_counts[@]}]}
        tag=$$-$transport-$(printf %06d "$i")
        one_run "$transport" "$ranks"
        wrong=$(verdict "$transport" "$ranks")
        [ -n "$wrong" ] || continue
        failed=$((failed + 1))
        mkdir -p "$logs/$transport-$ranks-$i"
        cp "$run"/{command,stdout,stderr,log} "$logs/$transport-$ranks-$i/" 2>/dev/null || true
        echo "    $transport N=$ranks run $((i + 1)): ${wrong//$'\n'/; }; see $logs/$transport-$ranks-$i"
    done
    printf '%-10s%6d runs%6d failures, %d s\n' "$transport" "$runs" "$failed" $(($(date +%s) - begin))
    failures=$((failures + failed))
done
[ "$failures" -eq 0 ] || stop 1 "$failures runs failed; their logs are in $logs"
