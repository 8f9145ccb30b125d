#!/usr/bin/env bash
# Starts a program under the launcher of an MPI library, with more processes than cores where it must be, also as
# root:  launch.sh openmpi|mpich PROCESSES PROGRAM [ARGUMENTS]
# Exit code 77 when the launcher is not installed.
set -euo pipefail

family=$1
processes=$2
shift 2

find_launcher() # words of its version, then names
{
    local words=$1 name version
    shift
    for name in "$@"; do
        command -v "$name" >/dev/null 2>&1 || continue
        version=$("$name" --version 2>&1 || true)
        if grep -q -i "$words" <<<"$version"; then
            echo "$name"
            return
        fi
    done
}

case $family in
openmpi)
    launcher=$(find_launcher 'open.*mpi\|openrte\|prte' mpirun.openmpi mpirun mpiexec)
    # the names of version 4, then those of version 5
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
    export OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
    ;;
mpich) launcher=$(find_launcher 'hydra\|mpich' mpiexec.mpich mpiexec.hydra mpiexec mpirun) ;;
*)
    echo "launch.sh: '$family' is unknown, expected openmpi or mpich" >&2
    exit 2
    ;;
esac
if [ -z "$launcher" ]; then
    echo "launch.sh: no launcher of $family is installed: skipped" >&2
    exit 77
fi

# what these libraries keep until the process ends is not our leak
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
exec timeout --kill-after=10 "${FO_LAUNCH_LIMIT:-600}" "$launcher" -n "$processes" "$@"
