#!/usr/bin/env bash
# Latency and bandwidth of messages over MPI against the library's own calls: bench/pingpong.c under every MPI that
# was found, over shared memory and over TCP.
#   bench/pingpong.sh [BUILD [SECONDS]]     BUILD: a build folder; default: build. SECONDS a size and kind: 2
# Exit code 1 when a figure is not within 5 %.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
seconds=${2:-2}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0

cmake -S "$root" -B "$build" >"$log" 2>&1 || { cat "$log" >&2; exit 1; }

# Each process on a core of its own: two on one core measure the scheduler.
run() # family, words of the title, then VARIABLE=VALUE...
{
    local family=$1 title=$2 result=0
    shift 2
    echo
    echo "$title"
    env "$@" HYDRA_BINDING=core bash "$root/tests/mpi/launch.sh" "$family" 2 "$build/bench/pingpong_$family" \
        "$seconds" >"$log" 2>&1 || result=1
    if grep -q 'within 5 %\|take more' "$log"; then
        grep 'bytes\|^us\|^MB/s\|within 5 %\|take more' "$log"
    else
        tail -n 5 "$log"
    fi
    [ "$result" -eq 0 ] || code=1
}

for family in openmpi mpich; do
    if ! cmake --build "$build" --target "pingpong_$family" >"$log" 2>&1; then
        echo "$family was not found when $build was made: skipped"
        continue
    fi
    if [ "$family" = openmpi ]; then
        run "$family" 'Open MPI, shared memory' OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,vader
        run "$family" 'Open MPI, TCP' OMPI_MCA_pml=ob1 OMPI_MCA_btl=self,tcp
    else
        run "$family" 'MPICH, shared memory' UCX_TLS=self,posix,sysv,cma
        run "$family" 'MPICH, TCP' UCX_TLS=self,tcp FI_PROVIDER=tcp MPIR_CVAR_NOLOCAL=1
    fi
done
exit "$code"
