#!/usr/bin/env bash
# Builds into build-asan or build-tsan and runs the tests there: tools/sanitize.sh address|thread
set -euo pipefail

case ${1:-} in
address) folder=build-asan ;;
thread) folder=build-tsan ;;
*)
    echo "tools/sanitize.sh: '${1:-}' is unknown, expected address or thread" >&2
    exit 2
    ;;
esac
here=$(cd "$(dirname "$0")" && pwd)

cmake -S "$here/.." -B "$folder" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DFO_SANITIZE="$1" >/dev/null
cmake --build "$folder" -j "${JOBS:-2}"

# memory that there isn't is an error of ours, with a sentence, and not the sanitizer's
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_stack_use_after_return=1:strict_string_checks=1:allocator_may_return_null=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export LSAN_OPTIONS=${LSAN_OPTIONS:-suppressions=$here/lsan.supp:print_suppressions=0}
export TSAN_OPTIONS=${TSAN_OPTIONS:-suppressions=$here/tsan.supp:ignore_noninstrumented_modules=1:halt_on_error=1}

run=(ctest --test-dir "$folder" --output-on-failure -j "${JOBS:-2}" --timeout 1500)
if [ "$1" = thread ]; then
    # Ranks as threads are what there is to look at: what forks its ranks is labelled notsan, and
    # teams of one thread keep the uninstrumented OpenMP library out of the picture.
    export OMP_NUM_THREADS=1
    run+=(-LE notsan)
    # this sanitizer wants its addresses where an older kernel put them
    if setarch "$(uname -m)" -R true 2>/dev/null; then
        run=(setarch "$(uname -m)" -R "${run[@]}")
    fi
fi
"${run[@]}"
