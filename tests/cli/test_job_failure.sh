#!/usr/bin/env bash
# Failures under launchers: one sentence, whoever finds them; what differs between ranks is named; last words say where to
# go on from. Skipped without a launcher.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/job.sh"

make_text "$work/text" 1000
make_text "$work/more" 1001
model=(--data "$work/text" --layers 1 --heads 4 --dim 32 --context 32 --batch 6 --warmup 2 --eval-every 0
    --threads 1)

for family in "${!launchers[@]}"; do
    echo "with ${launchers[$family]}"
    rm -rf "$work/model"
    run train "${model[@]}" --steps 1 --out "$work/model" --quiet # to sample from
    expect_code 0

    # what is wrong for everyone: one sentence
    job $family 2 train "${model[@]}" --lr nan
    refused 2 "--lr is 'nan'"
    job $family 2 train "${model[@]}" --data "$work/nowhere"
    refused 1 "$work/nowhere"
    job $family 2 train "${model[@]}" --ranks 4
    refused 2 "--ranks is 4" "started 2 processes" "start 4"
    job $family 2 train "${model[@]}" --transport shm
    refused 2 "transport shm in a job of 2 processes" "leave --transport out"
    job $family 4 train "${model[@]}" --overlap hier --nodes 3
    refused 2 "flashoverlap train: 4 ranks can't be spread evenly over --nodes 3 machines"
    job $family 2 train "${model[@]}" --compare none,library
    refused 2 "flashoverlap train: strategy 'library' is for single operators"
    job $family 2 train "${model[@]}" --dim 200000
    refused 1 "flashoverlap train: no memory for "
    job $family 3 bench row --rows 100 --overlap bogus
    refused 2 bogus
    job $family 2 frobnicate
    refused 2 frobnicate

    # what rank 0 alone can't do is the end of all
    : >"$work/file"
    job $family 2 train "${model[@]}" --steps 2 --log "$work/file/log"
    refused 1 "$work/file/log"
    job $family 3 train "${model[@]}" --steps 2 --log /dev/full
    refused 1 "flashoverlap train: the log /dev/full can't be written"
    [[ "$err" != *waited* ]] || fail "$command_line: names one that waited: $err"
    job $family 2 train "${model[@]}" --steps 2 --out "$work/file/model"
    refused 1 "$work/file"
    job $family 2 bench row --rows 64 --dim 16 --ffn 16 --report "$work/file/report"
    refused 1 "$work/file/report"

    # what differs is named, with the ranks
    export OTHER_RANK=1 OTHER_WORDS="--context 16"
    job $family 2 train "${model[@]}" --steps 2 --log "$work/differs"
    refused 2 "--context is 32 on rank 0 and 16 on rank 1; every rank must be given the same options"
    OTHER_RANK=2
    job $family 4 train "${model[@]}" --steps 2
    refused 2 "--context is 32 on ranks 0, 1, 3 and 16 on rank 2"
    OTHER_WORDS="--lr 0.5" OTHER_RANK=0
    job $family 3 train "${model[@]}" --steps 2
    refused 2 "--lr is 0.5 on rank 0 and 0.00100000005 on ranks 1, 2"
    OTHER_WORDS="--data $work/more" OTHER_RANK=1
    job $family 2 train "${model[@]}" --steps 2
    refused 2 "--data is " " bytes with hash " "on rank 0 and " "every rank needs the same file"
    OTHER_WORDS="--data $work/nowhere"
    job $family 2 train "${model[@]}" --steps 2
    refused 1 "rank 1" "$work/nowhere"
    OTHER_WORDS="--ranks 3"
    job $family 2 train "${model[@]}" --steps 2
    refused 2 "rank 1" "--ranks is 3"
    OTHER_WORDS="--repeat 7"
    job $family 2 bench row --rows 64 --dim 16 --ffn 16 --repeat 2
    refused 2 "--repeat is 2 on rank 0 and 7 on rank 1"
    OTHER_WORDS="--temperature 0.5"
    job $family 2 sample --checkpoint "$work/model" --tokens 4 --temperature 0
    refused 2 "--temperature is 0 on rank 0 and 0.5 on rank 1"
    unset OTHER_RANK OTHER_WORDS

    # last words: who died, and where to go on from
    rm -rf "$work/kept"
    death $family 3 1 "rank 1" "; go on with --resume $work/kept (step " -- --out "$work/kept" --save-every 1
    step=$(sed 's/[^0-9]//g' "$work/kept/latest")
    run train "${model[@]}" --steps $((10#$step + 1)) --resume "$work/kept" --ranks 3 --quiet
    expect_code 0 # what was kept is whole
    death $family 2 0 "rank 0" "; nothing was saved: use --out and --save-every" --
    death $family 2 1 "nothing was saved since, go on with --resume $work/kept/step-" -- --resume "$work/kept"

    # one rank is told to stop: all save and stop
    rm -rf "$work/kept"
    endless $family 2 --out "$work/kept"
    kill -INT "$(<"$work/pid.1")"
    await_end
    ended "interrupted after step" "--resume $work/kept"
    # Hydra makes 9 of it when it has killed one that waited for the other to have spoken
    [ $family/$code = mpich/9 ] || expect_same "exit code after SIGINT, $family" $code 130
    expect_file "$work/kept/latest"
done

finish
