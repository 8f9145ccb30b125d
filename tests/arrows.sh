#!/usr/bin/env bash
# tools/arrows.sh must be silent on the tree as it is, and name each rule that is broken in a copy of it.
#   tests/arrows.sh ROOT
set -euo pipefail

root=$(cd "$1" && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
failures=0

fresh_copy()
{
    rm -rf "${copy:?}"/*
    mkdir -p "$copy/examples"
    for part in ARCHITECTURE.md CMakeLists.txt Makefile cmake src include cli examples tests tools; do
        [ ! -e "$root/$part" ] || cp -r "$root/$part" "$copy/"
    done
}

expect_silence()
{
    local said
    if ! said=$(bash "$copy/tools/arrows.sh" "$copy" 2>&1) || [ -n "$said" ]; then
        printf 'expected silence after: %s, got:\n%s\n' "$1" "$said"
        failures=$((failures + 1))
    fi
}

expect() # what the complaint must contain
{
    local said
    if said=$(bash "$copy/tools/arrows.sh" "$copy" 2>&1); then
        echo "not noticed: $1"
        failures=$((failures + 1))
    elif [[ "$said" != *"$1"* ]]; then
        printf 'expected a line with: %s, got:\n%s\n' "$1" "$said"
        failures=$((failures + 1))
    elif [ "$(wc -l <<<"$said")" -ne 1 ]; then
        printf 'expected one line with: %s, got:\n%s\n' "$1" "$said"
        failures=$((failures + 1))
    fi
    fresh_copy
}

add() # file line
{
    printf '%s\n' "$2" >>"$copy/$1"
}

fresh_copy
expect_silence "nothing"

add src/schedule/program.h '#include "transport/transport.h"'
expect "room 'schedule' must not include \"transport/transport.h\", it may include: base"

add src/base/clock.h '#include "schedule/program.h"'
expect "room 'base' must not include \"schedule/program.h\""

add src/exec/exec.c '  #  include   "transport/shm/shm.h"'
expect "\"transport/shm/shm.h\" is inside room 'transport', only its top headers may be included"

add src/exec/exec.c '#include "exec.h"'
expect '"exec.h" is not written from src/, expected "exec/exec.h"'

add src/base/base.c '#include "flashoverlap/nothing.h"'
expect 'there is no public header flashoverlap/nothing.h'

add include/flashoverlap/plan.h '#include "base/error.h"'
expect 'a public header must not include "base/error.h"'

add cli/cmd_info.c '#include "kernel/kernel.h"'
expect 'cli/ must not include "kernel/kernel.h", only public headers'

add src/op/plan.c '#include <dnnl.h>'
expect '<dnnl.h> belongs in src/kernel/onednn/ only'

add src/kernel/registry.c '#include <dnnl.h>'
expect '<dnnl.h> belongs in src/kernel/onednn/ only'

add src/exec/exec.c '#include <omp.h>'
expect '<omp.h> belongs in src/kernel/ only'

add cli/main.c '#include <jansson.h>'
expect '<jansson.h> belongs in src/checkpoint/ src/train/ src/sim/ src/planner/ only'

add src/transport/shm/shm.h '#include <mpi.h>'
expect '<mpi.h> belongs in src/transport/mpi/ only'

add src/base/base.c '#include <assert.h>'
expect 'src/base/base.c:'

add src/op/plan.c 'void f(void) { exit(1); }'
expect 'exit or abort in the library'

add src/op/plan.c 'void f(void) { abort (); }'
expect 'exit or abort in the library'

add src/op/plan.c '/* exit(1) */ const char *g = "abort()"; // exit(2)'
add src/op/plan.c 'void f(void) { _exit(1); }'
expect_silence "exit in comments and strings, _exit"
fresh_copy

add CMakeLists.txt 'add_compile_options(-ffast-math)'
expect 'fast-math changes results'

for _ in $(seq 801); do echo; done >>"$copy/src/base/random.c"
expect 'lines, expected at most 800'

mkdir "$copy/src/extra"
expect 'src/extra/ is not in the table of rooms of ARCHITECTURE.md'

sed -i 's/^| `exec` .*/| `exec` | runs programs | base schedule |/' "$copy/ARCHITECTURE.md"
if bash "$copy/tools/arrows.sh" "$copy" >/dev/null; then
    echo "not noticed: the table no longer allows exec -> transport"
    failures=$((failures + 1))
fi
fresh_copy

# names: a library with a stray export
if command -v cc >/dev/null && [ -n "${2:-}" ]; then
    mkdir "$copy/build"
    cp "$2"/libfo_*.a "$copy/build/"
    echo 'int stray_name(void); int stray_name(void) { return 0; }' >"$copy/stray.c"
    cc -c "$copy/stray.c" -o "$copy/stray.o"
    ar r "$copy/build/libfo_base.a" "$copy/stray.o"
    said=$(bash "$copy/tools/arrows.sh" "$copy" "$copy/build" 2>&1 || true)
    if [[ "$said" != *"src/base/ exports stray_name, expected a name that begins with fo_base_"* ]]; then
        printf 'a stray export was not noticed, got:\n%s\n' "$said"
        failures=$((failures + 1))
    fi
fi

if [ $failures -gt 0 ]; then
    echo "$failures failed"
    exit 1
fi
