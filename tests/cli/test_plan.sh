#!/usr/bin/env bash
# plan: what it prints, the file that train follows, and what is said of input that makes no sense.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_text "$work/text" 4000

run plan --help
expect_code 0
expect_out "Usage: flashoverlap plan" --model --machine --ranks --explain --json

# ---- what it prints ------------------------------------------------------------------------------------
run plan --model llama3-70b --machine h100-sxm-ndr --ranks 64 --batch 64 --explain
expect_code 0
expect_out "llama3-70b on 64 x h100-sxm-ndr (simulated)" "best: tp " "overlap saves " "against data slicing" \
    "qkv forward" "lost above the bound" "GB a rank"
[ -z "$err" ] || fail "$command_line complained: $err"
[ "$(wc -L <"$work/.out")" -le 170 ] || fail "$command_line: a line over 170 columns"
run plan --model llama3-70b --machine h100-sxm-ndr --ranks 64 --batch 64 --json
expect_code 0
valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
expect_out '"figures": "simulated"' '"tp": ' '"none_s": ' '"operations": ['

# ---- a model by its sizes ----
run plan --layers 2 --dim 64 --heads 4 --vocabulary 256 --context 32 --machine cpu-host --ranks 2 --batch 4 --dtype f32 --json
expect_code 0
expect_out '"figures": "simulated"'
run plan --model gpt2 --layers 24 --ranks 2 --machine h100-sxm
expect_code 0
expect_out "gpt2, changed on 2 x h100-sxm"
run plan --layers 2
expect_error 2 "--model is missing, and so is --dim"

# ---- a plan that is followed ---------------------------------------------------------------------------
cat >"$work/config.json" <<'J'
{"model_type": "gpt2", "n_layer": 2, "n_embd": 32, "n_head": 4, "vocab_size": 256, "n_positions": 16}
J
run plan --model "$work/config.json" --machine cpu-host --ranks 4 --tp 2 --pp 1 --batch 8 --micro-batch 4 --context 16 \
    --dtype f32 --wire f32 --recompute none --out "$work/plan.json"
expect_code 0
expect_file "$work/plan.json"
tiny=(--data "$work/text" --layers 2 --heads 4 --dim 32 --context 16 --steps 3 --eval-every 0 --ranks 4)
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json"
expect_code 0
expect_out "2 tensor-parallel x 2 data-parallel" "overlap as planned"
planned=$(sed -nE 's/.*loss +([0-9.]+).*/\1/p' <<<"$out")
run train "${tiny[@]}" --batch 8 --tp 2 --dp 2 --overlap none
expect_code 0
expect_same "losses as planned and with nothing overlapped" "$planned" "$(sed -nE 's/.*loss +([0-9.]+).*/\1/p' <<<"$out")"

run train "${tiny[@]}" --batch 4 --plan "$work/plan.json"
expect_error 2 "--plan $work/plan.json was made for batch 8, micro_batch 4 and dp 2, this run has --batch 4" \
    "expected the same: --batch 8 --accumulate 1"

# a step of several micro-batches: what passes at a time is --batch, and --accumulate times that the plan's batch
two=(--data "$work/text" --layers 2 --heads 4 --dim 32 --context 16 --steps 2 --eval-every 0 --ranks 2)
run plan --model "$work/config.json" --machine cpu-host --ranks 2 --tp 2 --pp 1 --batch 32 --micro-batch 2 --context 16 \
    --dtype f32 --wire f32 --recompute none --out "$work/many.json"
expect_code 0
run train "${two[@]}" --batch 2 --plan "$work/many.json"
expect_error 2 "was made for batch 32, micro_batch 2 and dp 1" "this run has --batch 2 --accumulate 1" "--batch 2 --accumulate 16, or"
run train "${two[@]}" --batch 32 --plan "$work/many.json"
expect_error 2 "this run has --batch 32 --accumulate 1; expected the same: --batch 2 --accumulate 16"
run train "${two[@]}" --batch 2 --accumulate 16 --plan "$work/many.json"
expect_code 0
expect_out "overlap as planned"

# ---- a plan for what training does not do --------------------------------------------------------------
four=(--model "$work/config.json" --machine l20 --ranks 4 --tp 4 --pp 1 --dtype f32 --wire f32 --context 16 --batch 8
    --micro-batch 8 --recompute none --out "$work/four.json")
run plan "${four[@]}"
expect_code 0
run train "${tiny[@]}" --batch 8 --plan "$work/four.json"
expect_code 0
run plan "${four[@]}" --no-sequence-parallel
expect_code 0
run train "${tiny[@]}" --batch 8 --plan "$work/four.json"
expect_error 2 "--plan $work/four.json: sequence_parallel is false, expected true" "plan again without --no-sequence-parallel"
sed 's/"sequence_parallel": false/"sequence_parallel": true/' "$work/four.json" >"$work/odd.json"
run train "${tiny[@]}" --batch 8 --plan "$work/odd.json"
expect_error 2 "--plan $work/odd.json: operations names no \"" "plan again"
run plan "${four[@]}" --written-scores
expect_code 0
run train "${tiny[@]}" --batch 8 --plan "$work/four.json"
expect_error 2 "--plan $work/four.json: flash_attention is false, expected true" "plan again without --written-scores"
sed 's/"flash_attention": [a-z]*, //' "$work/four.json" >"$work/odd.json"
run train "${tiny[@]}" --batch 8 --plan "$work/odd.json"
expect_error 2 "flash_attention is missing, expected e.g. true"

# ---- sizes and words that contradict -------------------------------------------------------------------
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json" --tp 4
expect_error 2 "was made for tp 2, this run has 4"
run train "${tiny[@]}" --batch 8 --plan "$work/none.json"
expect_error 1 "plan $work/none.json can't be opened"
sed 's/"tp": 2/"tp": 3/' "$work/plan.json" >"$work/odd.json"
run train "${tiny[@]}" --batch 8 --plan "$work/odd.json"
expect_error 2 "ranks is 4, but tp 3 x dp 2 x pp 1 are 6"

# what a plan says of strategies and --overlap would contradict each other; a tp that is the plan's own does not
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json" --overlap none
expect_error 2 "--plan $work/plan.json and --overlap none both say" "expected one of them"
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json" --overlap flash
expect_error 2 "both say how operations overlap"
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json" --dp 4
expect_error 2 "was made for dp 2, this run has 4; expected the same: --dp 2, or another plan"
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json" --tp 2 --dp 2
expect_code 0
run train "${tiny[@]}" --batch 8 --plan "$work/plan.json" --dtype bf16
expect_error 2 "was made for dtype f32, this run has bf16; expected the same: --dtype f32"

# ---- input that makes no sense -------------------------------------------------------------------------
run plan --model gpt5
expect_error 2 "model 'gpt5' is unknown" llama3-70b
run plan --machine abacus
expect_error 2 "machine 'abacus' is unknown" h100-sxm
run plan --ranks 7 --tp 2
[[ "$err" == "flashoverlap plan: tp 2"* ]] || fail "$command_line says for whom twice: $err"
expect_error 2 "tp 2 does not divide 7 ranks"
run plan --ranks 8 --tp 3
expect_error 2 "tp 3 does not divide 8 ranks, expected e.g. tp 2"
[[ "$err" != *dp* && "$err" != *pp* ]] || fail "$command_line names what nobody gave: $err"
run plan --ranks 8 --micro-batch 48
expect_error 2 "micro_batch 48 leaves no way to split 8 ranks" "micro_batch 32"
run plan --model llama3-405b --ranks 8
expect_error 2 "GB a rank on 8 ranks" "expected at most 72.0 GB"
run plan --recompute some
expect_error 2 "--recompute is 'some', expected least, none, selective or full"
run plan --model "$work/text"
expect_error 2 "$work/text: the beginning, line 1" "expected JSON" config.json
# where it can't be written is known before the search: this one would take its time and find nothing that fits
run plan --model llama3-405b --ranks 8 --out "$work/no/such/plan.json"
expect_error 1 "$work/no/such/plan.json"
run plan --model gpt2 --ranks 2 --out "$work"
expect_error 1 "$work is a directory"
leftovers=$(find "$work" -name '.tmp-*')
[ -z "$leftovers" ] || fail "left over: $leftovers"
ln -s "$work/target" "$work/link.json"
run plan --model gpt2 --ranks 2 --out "$work/link.json"
expect_code 1
[ -L "$work/link.json" ] || fail "plan --out replaced a link"
sed 's/"qkv forward"/"foo forward"/' "$work/plan.json" >"$work/odd.json"
run train "${tiny[@]}" --batch 8 --plan "$work/odd.json"
expect_error 2 'operations[' 'is "foo forward", which is no operation'
finish
