#!/usr/bin/env bash
# Bad input: one sentence that says what was found and what was expected, and an exit code.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_text "$work/text" 2000
tiny=(--data "$work/text" --layers 1 --heads 2 --dim 16 --context 16 --batch 4 --steps 2 --eval-every 0
    --quiet)

# ---- the command line ------------------------------------------------------------------------------
run trian
expect_error 2 "unknown command 'trian', did you mean 'train'?"
run frobnicate
expect_error 2 "unknown command 'frobnicate'"
run train --rank 2
expect_error 2 "unknown option --rank, did you mean --ranks?"
run train --ranks two
expect_error 2 "--ranks is 'two', expected a whole number from 1 to 4096"
run train --ranks 0
expect_error 2 "--ranks is '0', expected a whole number from 1 to 4096"
run train --lr nan
expect_error 2 "--lr is 'nan', expected a number from 0"
run train --lr
expect_error 2 "--lr is the last word, expected a value behind it"
run train --dtype fp16
expect_error 2 "--dtype is 'fp16', expected f32 or bf16"
run train --format txt
expect_error 2 "--format is 'txt', expected bytes, char, nanogpt or llmc"
run train --link fast
expect_error 2 "--link is 'fast', expected a speed" "2GB/s,5us"
run train
expect_error 2 "--data is missing"
run train text.txt
expect_error 2 "'text.txt' is not an option"
run sample
expect_error 2 "--checkpoint is missing"
run schedule
expect_error 2 "expected row, column, mlp, row-backward, column-backward or column-wgrad"
run schedule rows
expect_error 2 "'rows' is unknown, expected row, column, mlp, row-backward, column-backward or column-wgrad"
run schedule row --overlap flsh
expect_error 2 "flsh" "flash"
run bench row --overlap none,,flash --rows 64 --dim 16 --ffn 16 --repeat 1
expect_error 2 ",flash" "expected names separated by commas"
run bench diagonal
expect_error 2 "'diagonal' is unknown, expected row, column, mlp, attention, layer or step"
run train "${tiny[@]}" --overlap slice:0
expect_error 2 "slice:0"
run train "${tiny[@]}" --overlap library
expect_error 2 "flashoverlap train: strategy 'library' is for single operators" "slice:k"
run train "${tiny[@]}" --compare none,library:4
expect_error 2 "flashoverlap train: strategy 'library:4' is for single operators" "slice:k"
run train "${tiny[@]}" --transport smoke-signals
expect_error 2 "smoke-signals" shm self
run train "${tiny[@]}" --kernel abacus
expect_error 2 abacus onednn ref

# ---- sizes ----------------------------------------------------------------------------------------
run train "${tiny[@]}" --heads 3
expect_error 2 16 3
run train "${tiny[@]}" --min-lr 1
expect_error 2 "--min-lr"
# what every rank would refuse is nobody's fault
run train "${tiny[@]}" --ranks 4 --nodes 3
expect_error 2 "flashoverlap train: 4 ranks can't be spread evenly over --nodes 3 machines" "--nodes 2"
run bench row --ranks 2 --nodes 3 --rows 64 --dim 16 --ffn 16
expect_error 2 "flashoverlap bench: 2 ranks can't be spread evenly over --nodes 3 machines" "--nodes 2"
for transport in shm self; do
    run train "${tiny[@]}" --ranks 3 --transport $transport --dim 200000
    expect_error 1 "flashoverlap train: no memory for "
    run train "${tiny[@]}" --ranks 3 --transport $transport --dim 200000 --compare none
    expect_error 1 "flashoverlap train: no memory for "
done

# ---- data -----------------------------------------------------------------------------------------
run train "${tiny[@]}" --data "$work/nowhere"
expect_error 1 "flashoverlap train: --data $work/nowhere can't be opened"
run train "${tiny[@]}" --data ""
expect_error 2 "--data FILE"
run train "${tiny[@]}" --data /dev/null
expect_error 1 "flashoverlap train: --data /dev/null is not a regular file"
: >"$work/empty"
run train "${tiny[@]}" --data "$work/empty"
expect_error 1 "--data $work/empty is empty"
printf 'short' >"$work/short"
run train "${tiny[@]}" --data "$work/short"
expect_error 1 17
run train "${tiny[@]}" --data "$work"
expect_error 1 "--data $work is a directory"
printf 'good \377 bad' >"$work/broken"
run train "${tiny[@]}" --data "$work/broken" --format char
expect_error 1 "$work/broken" 5

# token ids beyond the vocabulary, with the offset of the first
for _ in $(seq 400); do printf '\001\000'; done >"$work/tokens"
printf '\377\377' >>"$work/tokens"
run train "${tiny[@]}" --data "$work/tokens" --format nanogpt --vocabulary 100
expect_error 1 65535 400 100
run train "${tiny[@]}" --data "$work/tokens" --format nanogpt
expect_error 2 "--vocabulary"
printf '\001' >>"$work/tokens"
run train "${tiny[@]}" --data "$work/tokens" --format nanogpt --vocabulary 100
expect_error 1 "$work/tokens"
run train "${tiny[@]}" --data "$work/text" --format llmc --vocabulary 100
expect_error 1 "$work/text" 20240520

# ---- directories: before training starts ------------------------------------------------------------
: >"$work/file"
run train "${tiny[@]}" --out "$work/file/model"
expect_error 1 "--out $work/file/model: $work/file is not a directory"
run train "${tiny[@]}" --out "$work/file"
expect_error 1 "--out $work/file is not a directory"
run train "${tiny[@]}" --out ""
expect_error 2 "--out is empty"
if [ "$(id -u)" -ne 0 ]; then
    mkdir -m 555 "$work/locked"
    run train "${tiny[@]}" --out "$work/locked/model"
    expect_error 1 "$work/locked"
fi
run train "${tiny[@]}" --log "$work/file/log"
expect_error 1 "$work/file/log"
run train "${tiny[@]}" --resume "$work/nowhere"
expect_error 1 "$work/nowhere"
run sample --checkpoint "$work/nowhere"
expect_error 1 "$work/nowhere"

# ---- files of settings: 2 when what they say makes no sense, 1 when they can't be read ---------------------
# settings CODE SENTENCE... : of each kind of file, the one at $path
settings()
{
    run simulate step --machine h100-sxm --tp 8 --batch 8 --model "$path"
    expect_error "$@"
    run simulate row --machine "$path"
    expect_error "$@"
    run plan --machine "$path"
    expect_error "$@"
    run train "${tiny[@]}" --plan "$path"
    expect_error "$@"
    run train "${tiny[@]}" --profile "$path"
    expect_error "$@"
    run bench row --profile "$path"
    expect_error "$@"
}
path=$work/settings.json
settings 1 "$path can't be opened" "expected"
mkdir "$path"
settings 1 "$path is a directory" "expected"
rmdir "$path"
mkfifo "$path"
settings 1 "$path is a named pipe" "expected"
rm "$path"
truncate -s 100G "$path" # of holes
settings 2 "$path has more than" "expected"
rm "$path"
ln -s /dev/zero "$path"
settings 1 "$path is not a regular file" "expected"
rm "$path"
: >"$path"
settings 2 "$path is empty" "expected"
for text in ' ' '{' 'nonsense' '[' '"x"' '7' '[]' '{}' '{"a": 1e400}' '{"a": NaN}' '{"a": 1,5}' '{"a": 1, "a": 1}' \
    '{"a": 99999999999999999999999}' "$(printf '[%.0s' {1..5000})" $'\xff\xfe{}' $'\xef\xbb\xbf{}' '{"\u001b[31m\n": 1}'; do
    printf '%s' "$text" >"$path"
    settings 2 "$path: " "expected"
    [[ "$err" != *$'\x1b'* ]] || fail "$command_line: a control character in: $err"
done
printf '{"a": 1\0}' >"$path"
settings 2 "$path: " "expected"

# --profile is a file that calibrate wrote, never the name of a machine to simulate
for verb in "train ${tiny[*]}" "bench row"; do
    # shellcheck disable=SC2086
    run $verb --profile h100-sxm
    expect_error 2 "--profile is 'h100-sxm', expected a file that \`flashoverlap calibrate --out FILE\` wrote" \
        "go with simulate and plan"
done
[ -z "$(find . -maxdepth 1 -name 'wisdom-*' -newer "$work/text")" ] || fail "wisdom was kept in the current folder"
cp "$source_folder/profiles/cpu-host.json" "$work/mine" # whatever a file is called
(cd "$work" && "$program" train "${tiny[@]}" --profile mine >/dev/null 2>"$work/.err") ||
    fail "--profile mine: $(<"$work/.err")"

# ---- a disk that is full: known to rank 0 alone, while others wait for it -----------------------------
for transport in shm self; do
    run train "${tiny[@]}" --ranks 3 --transport $transport --log /dev/full
    expect_error 1 "flashoverlap train: the log /dev/full can't be written" "use another --log; nothing was saved"
    [[ "$err" != *waited* ]] || fail "$command_line: names one that waited: $err"
done

finish
