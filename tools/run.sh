#!/usr/bin/env bash
# What `make run` shows: trains a small GPT, lets it write, then compares strategies on the same step.
#   tools/run.sh PROGRAM [TRAIN OPTIONS...]
# Environment: DATA (a text file; default: the King James Bible), SECONDS_TO_TRAIN, STEPS, RUN (folder).
set -euo pipefail

program=$1
shift
folder=${RUN:-run}
seconds=${SECONDS_TO_TRAIN:-110}
data=${DATA:-}
prompt="In the beginning"

# ---- numbers to tune ---------------------------------------------------------------------------------
model=(--layers 4 --heads 4 --dim 256 --context 256 --batch 16)
optimizer=(--lr 1e-3 --min-lr 1e-4 --decay 0.1 --clip 1)
compare=(--compare "none,slice:4,flash" --link "auto:0.56,5us" --steps 6)
least_steps=50 most_steps=2000
# ------------------------------------------------------------------------------------------------------

mkdir -p "$folder"
if [ -z "$data" ]; then
    data=$folder/kjv.txt
    bash "$(dirname "$0")/text.sh" "$data"
fi

# bfloat16 where the processor multiplies it, float32 elsewhere
dtype=f32
if "$program" info --json | grep -qE '"isa": "[^"]*(bf16|amx)'; then
    dtype=bf16
fi
common=(--data "$data" --dtype "$dtype" "${model[@]}")

# as many steps as fit in the time, from the measured time of a few
steps=${STEPS:-}
if [ -z "$steps" ]; then
    step_ms=$("$program" train "${common[@]}" --steps 4 --eval-every 0 --quiet --json "$@" |
        sed -n 's/.*"step_ms": \([0-9.e+]*\).*/\1/p')
    steps=$(awk -v ms="$step_ms" -v s="$seconds" -v least=$least_steps -v most=$most_steps 'BEGIN {
        n = ms > 0 ? int(s * 1000 / ms / 10) * 10 : least
        print (n < least ? least : (n > most ? most : n)) }')
fi

# the model of the run before is kept
if [ -d "$folder/model" ]; then
    rm -rf "$folder/model.previous"
    mv "$folder/model" "$folder/model.previous"
fi

"$program" train "${common[@]}" "${optimizer[@]}" --steps "$steps" --warmup $((steps / 10)) \
    --eval-every $((steps / 5)) --eval-batches 4 --out "$folder/model" --log "$folder/log.jsonl" "$@"

printf '\n---- the model goes on from "%s" ----\n\n%s' "$prompt" "$prompt"
"$program" sample --checkpoint "$folder/model" --prompt "$prompt" --tokens 300 --temperature 0.8 \
    --top-k 40

printf '\n---- the same step under three strategies, over an emulated link ----\n\n'
"$program" train "${common[@]}" "${compare[@]}"

printf '\nmodel: %s/model  log: %s/log.jsonl  more: README.md, flashoverlap --help\n' "$folder" "$folder"
