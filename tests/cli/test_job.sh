#!/usr/bin/env bash
# The program under launchers joins the job by itself, speaks once and writes once. With N processes of each launcher
# the losses are those of N forked ranks. Skipped without a launcher.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/job.sh"

make_text "$work/text" 1000
model=(--data "$work/text" --layers 1 --heads 4 --dim 32 --context 32 --batch 6 --warmup 2 --eval-every 0
    --threads 1)

# ---- losses: forked ranks, and each launcher -----------------------------------------------------------------
declare -A expected
for ranks in 2 3 4; do
    run train "${model[@]}" --steps 6 --ranks $ranks --log "$work/log" --quiet
    expect_code 0
    expected[$ranks]=$(losses "$work/log")
done

for family in "${!launchers[@]}"; do
    echo "with ${launchers[$family]}"
    for ranks in 2 3 4; do
        job $family $ranks train "${model[@]}" --steps 6 --log "$work/log" --json
        expect_code 0
        expect_same "losses of $ranks ranks, $family against shm" "$(losses "$work/log")" "${expected[$ranks]}"
        expect_same "lines of the log, $family" "$(wc -l <"$work/log")" 6
        expect_same "lines of train --json, $family" "$(wc -l <"$work/out.0")" 1
        valid_json <"$work/out.0" || fail "$command_line: not JSON: $out"
        expect_same "step of the result" "$(number step <"$work/out.0")" 6
    done

    # progress and checkpoints once; going on, under another number and with forked ranks
    rm -rf "$work/model" "$work/rest"
    job $family 2 train "${model[@]}" --steps 6 --save-every 3 --out "$work/model" --log "$work/half" --ranks 2
    expect_code 0
    expect_same "lines of progress" "$(grep -c '^step .*loss' "$work/out.0")" 6
    expect_file "$work/model/latest"
    [ -z "$(find "$work/model" -name '.tmp*' -o -name '*.tmp')" ] || fail "$command_line: files are left"
    job $family 2 train "${model[@]}" --steps 6 --resume "$work/model/step-00000003" --log "$work/rest" --quiet
    expect_code 0
    expect_same "losses after resuming, $family" "$(losses "$work/rest")" \
        "$(tail -3 "$work/half" | number loss | xargs)"
    rm "$work/rest" # a log goes on where the run goes on
    run train "${model[@]}" --steps 6 --resume "$work/model/step-00000003" --log "$work/rest" --quiet
    expect_same "losses after resuming with shm, $family" "$(losses "$work/rest")" \
        "$(tail -3 "$work/half" | number loss | xargs)"

    # sampling, measuring, comparing
    job $family 2 sample --checkpoint "$work/model" --prompt "the " --tokens 20 --temperature 0
    expect_code 0
    run sample --checkpoint "$work/model" --prompt "the " --tokens 20 --temperature 0 --ranks 2
    expect_same "samples of $family and shm" "$(<"$work/out.0")" "$out"
    job $family 2 bench row --rows 256 --dim 32 --ffn 64 --repeat 3 --overlap none,flash --json \
        --trace "$work/trace.json" --report "$work/report.html" --threads 1
    expect_code 0
    valid_json <"$work/out.0" || fail "$command_line: not JSON: $out"
    expect_same "strategies measured" "$(grep -c '"overlap"' "$work/out.0")" 2
    [[ "$out" != *'"bits": false'* ]] || fail "$command_line: bits differ: $out"
    valid_json <"$work/trace.json" || fail "$command_line: the trace is not JSON"
    grep -q '</html>' "$work/report.html" || fail "$command_line: no report"
    job $family 3 bench mlp --sweep 2x64,4x32 --dim 32 --repeat 2 --overlap none,flash --threads 1
    expect_code 0
    expect_same "tables of a sweep" "$(grep -c '^flash ' "$work/out.0")" 2
    job $family 2 train "${model[@]}" --steps 2 --compare none,flash --report "$work/steps.html"
    expect_code 0
    expect_same "lines of a comparison" "$(grep -c '^flash ' "$work/out.0")" 1
    grep -q '</html>' "$work/steps.html" || fail "$command_line: no report"
    job $family 2 info
    expect_code 0
    expect_out "rank 0 of 2"

    # one process is a job, too
    job $family 1 train "${model[@]}" --steps 2 --json
    expect_code 0
done

# ---- without a launcher ---------------------------------------------------------------------------------------
run train "${model[@]}" --steps 2 --transport mpi --ranks 3
expect_error 2 "mpirun -n 3"

finish
