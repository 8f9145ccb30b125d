#!/usr/bin/env bash
# A tiny run from text to sample: log, equal losses, resuming to the bit, interruption, divergence.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_text "$work/text" 3000
model=(--data "$work/text" --layers 2 --heads 2 --dim 32 --context 32 --batch 4 --warmup 5 --lr 3e-3
    --min-lr 3e-4 --seed 11)

losses() { number loss <"$1"; }

# ---- a run -------------------------------------------------------------------------------------------
run train "${model[@]}" --steps 40 --eval-every 20 --eval-batches 2 --out "$work/model" --log "$work/log"
expect_code 0
expect_out "step" "loss" "tok/s" "validation loss"
expect_file "$work/log"
expect_same "lines of the log with a loss" "$(losses "$work/log" | wc -l)" 40
expect_same "lines of the log with a validation loss" "$(number val_loss <"$work/log" | wc -l)" 2
while read -r line; do
    valid_json <<<"$line" || fail "not JSON: $line"
done < <(head -3 "$work/log"; tail -1 "$work/log")
for key in step loss grad_norm lr step_ms tokens_per_s mfu exposed_ms; do
    [ "$(number $key <"$work/log" | wc -l)" -ge 40 ] || fail "the log lacks $key"
done
awk 'NR == 1 { first = $1 } { last = $1 } END { exit !(last < first * 0.8) }' \
    < <(losses "$work/log") || fail "the loss did not fall: $(losses "$work/log" | sed -n '1p;$p' | xargs)"
expect_file "$work/model/latest"
expect_file "$work/model/step-00000040/model.safetensors"
expect_file "$work/model/step-00000040/optimizer.safetensors"
[[ "$(<"$work/.out")" != *$'\033'* ]] || fail "colour in a file"

# ---- the result as JSON, progress elsewhere --------------------------------------------------------
run train "${model[@]}" --steps 3 --eval-every 0 --json
expect_code 0
valid_json <"$work/.out" || fail "train --json: not JSON: $out"
expect_same "step of the result" "$(number step <"$work/.out")" 3
[[ "$err" == *"step"* ]] || fail "train --json: expected progress on standard error"
run train "${model[@]}" --steps 2 --eval-every 0 --quiet
expect_same "quiet output" "$out" ""

# ---- equal bits: strategies, transports ---------------------------------------------------------------
for ranks in 2 3; do
    reference=
    for way in "none shm" "slice:4 shm" "ring shm" "flash shm" "flash:2 self" "direct shm" "none self"; do
        read -r overlap transport <<<"$way"
        run train "${model[@]}" --steps 6 --eval-every 0 --ranks $ranks --threads 1 --overlap "$overlap" \
            --transport "$transport" --log "$work/bits" --quiet
        expect_code 0
        found=$(losses "$work/bits" | xargs)
        [ -n "$reference" ] || reference=$found
        expect_same "losses of $ranks ranks, $way, against none shm" "$found" "$reference"
    done
done

# ---- resuming -----------------------------------------------------------------------------------------
run train "${model[@]}" --steps 20 --eval-every 0 --out "$work/whole" --log "$work/whole.log" --quiet
expect_code 0
# the same learning rates need the same --steps: stop by saving in the middle
run train "${model[@]}" --steps 20 --eval-every 0 --save-every 10 --out "$work/parts" --quiet
expect_code 0
run train "${model[@]}" --steps 20 --eval-every 0 --resume "$work/parts/step-00000010" \
    --log "$work/resumed.log" --quiet
expect_code 0
expect_same "losses after resuming" "$(losses "$work/resumed.log" | xargs)" \
    "$(losses "$work/whole.log" | tail -10 | xargs)"
# under another number of ranks: close, not equal
run train "${model[@]}" --steps 20 --eval-every 0 --resume "$work/parts/step-00000010" --ranks 3 \
    --threads 1 --log "$work/three.log" --quiet
expect_code 0
paste <(losses "$work/resumed.log") <(losses "$work/three.log") |
    awk '{ d = $1 - $2; if (d < 0) d = -d; if (d > 1e-3 * $1) exit 1 }' ||
    fail "resumed under 3 ranks, losses are far from those of 2"
run train "${model[@]}" --dim 64 --steps 30 --resume "$work/parts" --quiet
expect_error 2 dim 32 64
run train "${model[@]}" --steps 20 --resume "$work/parts" --quiet
expect_error 2 "step 20"

# a torn checkpoint is refused
cp -r "$work/parts" "$work/torn"
truncate -s 1000 "$work/torn/step-00000020/model.safetensors"
run train "${model[@]}" --steps 30 --resume "$work/torn" --quiet
expect_error 1 "$work/torn/step-00000020/model.safetensors"

# ---- sampling -------------------------------------------------------------------------------------------
run sample --checkpoint "$work/model" --prompt "the " --tokens 40 --temperature 0
expect_code 0
[ ${#out} -ge 20 ] || fail "sample wrote only '$out'"
first=$out
run sample --checkpoint "$work/model" --prompt "the " --tokens 40 --temperature 0 --ranks 2
expect_same "samples of 1 and 2 ranks, most likely tokens" "$out" "$first"
run sample --checkpoint "$work/model/step-00000040" --tokens 30 --seed 3 --top-k 5
first=$out
run sample --checkpoint "$work/model" --tokens 30 --seed 3 --top-k 5
expect_same "samples of one seed" "$out" "$first"
run sample --checkpoint "$work/model" --tokens 0
expect_code 0

# ---- char vocabulary ---------------------------------------------------------------------------------------
printf '%s\n' "äöü ßß" >>"$work/text"
run train "${model[@]}" --format char --steps 4 --eval-every 0 --out "$work/char" --quiet
expect_code 0
run sample --checkpoint "$work/char" --prompt "the " --tokens 5
expect_code 0
run sample --checkpoint "$work/char" --prompt "the Ω"
expect_error 2 4

# ---- a loss that is not a number: stop, the last good checkpoint stays ----------------------------------------
run train "${model[@]}" --steps 30 --eval-every 0 --save-every 1 --lr 1e30 --min-lr 1e30 --warmup 0 --clip 0 \
    --out "$work/diverged" --quiet
expect_error 1 "step"
for file in "$work"/diverged/step-*/model.safetensors; do
    [ ! -e "$file" ] || run train "${model[@]}" --steps 30 --eval-every 0 --resume "$work/diverged" --quiet
done

# ---- comparison -----------------------------------------------------------------------------------------------
run train "${model[@]}" --steps 3 --compare none,slice:4,flash --link auto:0.5
expect_code 0
expect_out none slice:4 flash emulated equal
[[ "$out" != *differ* ]] || fail "losses differ: $out"
run train "${model[@]}" --steps 3 --compare none,flash --json --link 2GB/s,5us
expect_code 0
valid_json <"$work/.out" || fail "compare --json: not JSON: $out"

finish
