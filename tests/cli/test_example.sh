#!/usr/bin/env bash
# The README's example runs and is right.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

example=$(dirname "$program")/example_linear
found=$("$example") || fail "example_linear failed: $found"
[[ "$found" == *"y[0][0] = 256, expected 256"* ]] || fail "example_linear said: $found"
[[ "$(<"$source_folder/README.md")" == *"examples/linear.c"* ]] || fail "the README names no example"

finish
