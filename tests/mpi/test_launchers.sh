#!/usr/bin/env bash
# Which launcher fits which library, and what is said when none does.
#   test_launchers.sh FOLDER FAMILY PROGRAM     FOLDER: of the modules; PROGRAM: tests/mpi/hello.c
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
folder=$1
family=$2
program=$3
other=openmpi
[ "$family" = openmpi ] && other=mpich
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
failed=0
# what these libraries keep until the process ends is not our leak
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

fail()
{
    echo "test_launchers ($family): $*"
    sed 's/^/    /' "$scratch/out"
    failed=1
}

# expect CODE "WORDS" COMMAND...: the exit code (x: any but 0) and words of the output
expect()
{
    local code=$1 words=$2 found=0
    shift 2
    "$@" >"$scratch/out" 2>&1 || found=$?
    if [ "$code" = x ]; then
        [ "$found" -ne 0 ] || fail "'$*' ended well, expected an error"
    elif [ "$found" -ne "$code" ]; then
        fail "'$*' ended with $found, expected $code"
    fi
    grep -q -e "$words" "$scratch/out" || fail "expected \"$words\" from '$*'"
}

launch() { bash "$here/launch.sh" "$@"; }
export FLASHOVERLAP_MPI_DIR=$folder

code=0
launch "$family" 1 true >/dev/null 2>&1 || code=$?
[ "$code" -ne 77 ] || exit 77

# One has work to do when all others have come to leave: they wait, and are not ended as stuck meanwhile. Takes its
# time; the others run beside it.
(
    code=0
    launch "$family" 3 "$program" 3 late >"$scratch/late" 2>&1 || code=$?
    echo "ended with $code" >>"$scratch/late"
) &
late=$!

# the job's library is chosen by itself; the sum of the ranks of all processes
expect 0 'sum 3' launch "$family" 3 "$program"
expect 0 'sum 0' launch "$family" 1 "$program"
# each number of ranks has its sentence
expect x 'a group of 5 ranks, but .* started 2 processes' launch "$family" 2 "$program" 5
expect x 'a group of 1 ranks, but .* started 2 processes' launch "$family" 2 "$program" 1
# said once
expect x 'started 3 processes' launch "$family" 3 "$program" 7
[ "$(grep -c 'started 3 processes' "$scratch/out")" -eq 1 ] || fail "the sentence was said more than once"
# without a launcher: alone, and not otherwise
expect 0 'sum 0' env FLASHOVERLAP_MPI="$family" "$program" 1
expect 1 'no launcher has started this process: use mpirun -n 4' env FLASHOVERLAP_MPI="$family" "$program" 4
# modules that are not there
mkdir "$scratch/none"
expect x "libflashoverlap-mpi-$family.so is not in $scratch/none" \
    env FLASHOVERLAP_MPI_DIR="$scratch/none" bash "$here/launch.sh" "$family" 2 "$program"
expect 1 'expected openmpi or mpich' env FLASHOVERLAP_MPI=pvm "$program" 1
echo 'no module' >"$scratch/none/libflashoverlap-mpi-$family.so"
expect 1 "libflashoverlap-mpi-$family.so can't be loaded" \
    env FLASHOVERLAP_MPI_DIR="$scratch/none" FLASHOVERLAP_MPI="$family" "$program" 1
# a rank that returns an error, one that exits
expect x 'rank 1: could not go on' launch "$family" 3 "$program" 3 fail
expect x 'rank 1: exited with code 3' launch "$family" 3 "$program" 3 exit
# all at once, as often as the launcher's patience lasts: one sentence, and an end
for _ in 1 2 3; do
    FO_LAUNCH_LIMIT=30 expect x 'nobody can do that' launch "$family" 4 "$program" 4 all
    [ "$(grep -c 'nobody can do that' "$scratch/out")" -eq 1 ] || fail "the sentence was said more than once"
done
# the end of main leaves the job too
expect 0 'sum 3' launch "$family" 3 "$program" 3 return

# the launcher of another library: every process would be rank 0 of 1
if [ -f "$folder/libflashoverlap-mpi-$other.so" ]; then
    expect x 'started 2 processes, but .* sees 1: the launcher belongs to another MPI library' \
        env FLASHOVERLAP_MPI="$other" bash "$here/launch.sh" "$family" 2 "$program"
    expect x "set FLASHOVERLAP_MPI=$family" \
        env FLASHOVERLAP_MPI="$other" bash "$here/launch.sh" "$family" 2 "$program"
    ln -s "$folder/libflashoverlap-mpi-$other.so" "$scratch/"
    expect x "asks for libflashoverlap-mpi-$family.so" \
        env FLASHOVERLAP_MPI_DIR="$scratch" bash "$here/launch.sh" "$family" 2 "$program"
fi
wait "$late"
if ! grep -qx 'sum 3' "$scratch/late" || ! grep -qx 'ended with 0' "$scratch/late"; then
    cp "$scratch/late" "$scratch/out"
    fail "'$program 3 late': processes were ended that waited for the last to leave"
fi
exit "$failed"
