#!/usr/bin/env bash
# Predicted against published training steps of Megatron-LM on A100 (arXiv 2205.05198): steps of 22B to 1T parameters,
# layers, replicas. Nothing is fitted; docs/planner.md says what is assumed.
#   bench/megatron.sh [BUILD]      BUILD: a build folder, made when it is not there; default: build
# Exit code 1 when a mean error is beyond 10 %.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=${1:-$root/build}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

{ cmake -S "$root" -B "$build" && cmake --build "$build" --target planner_test_megatron; } >"$log" 2>&1 ||
    { cat "$log" >&2; exit 1; }
# the tables only; what the test's runner says is on lines that begin with a bracket
if ! "$build/tests/planner_test_megatron" >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
grep -v '^\[' "$log"
