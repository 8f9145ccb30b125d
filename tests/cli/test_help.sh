#!/usr/bin/env bash
# Help, version, info: what people look at first.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

run --version
expect_code 0
expect_same version "$out" "flashoverlap $(sed -n 's/#define FO_VERSION "\(.*\)"/\1/p' \
    "$source_folder/include/flashoverlap/version.h")"

run --help
expect_code 0
expect_out train sample schedule bench info "Exit codes"

run
expect_code 2
[[ "$err" == Usage:* ]] || fail "without words: expected the usage, found $err"

for verb in train sample schedule bench info; do
    run $verb --help
    expect_code 0
    expect_out "Usage: flashoverlap $verb"
    [ -z "$err" ] || fail "$verb --help wrote to standard error: $err"
    [ "$(wc -l <"$work/.out")" -le 40 ] || fail "$verb --help has more than 40 lines"
    [ "$(wc -L <"$work/.out")" -le 80 ] || fail "$verb --help has a line over 80 columns"
done

run train --help
for option in ranks overlap layers heads dim context batch steps seed dtype wire lr min-lr warmup clip \
    decay beta1 beta2 dropout accumulate eval-every eval-batches out resume data format log link json \
    threads transport kernel deadline save-every quiet compare vocabulary; do
    expect_out "--$option"
done
run bench --help
for option in ranks rows dim ffn dtype link overlap repeat backward json; do
    expect_out "--$option"
done

# the defaults are shown also when --help comes last
run train --layers 77 --help
[[ "$out" != *"[77]"* ]] || fail "train --help shows what was given, expected the defaults"

run info
expect_code 0
expect_out "instruction set" cores kernels transports onednn ref shm self
run info --json
expect_code 0
valid_json <"$work/.out" || fail "info --json is not JSON: $out"
expect_out '"version"' '"cores"' '"kernels"' '"transports"' '"isa"'

# nothing is written in colour where nobody looks
[[ "$(cat "$work/.out")" != *$'\033'* ]] || fail "colour in a file"

# a full disk is an error
code=0
"$program" info >/dev/full 2>"$work/.err" || code=$?
[ $code -eq 1 ] || fail "info to a full disk: exit code $code, expected 1"

finish
