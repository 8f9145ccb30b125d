#!/usr/bin/env bash
# calibrate: a valid profile with sane figures; refuses before it measures; Ctrl-C leaves nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

# figures KEY: all values of a key in the profile, one a line.
figures()
{
    grep -oE "\"$1\": [-+0-9.eE]+" "$work/profile" | sed -E 's/.*: //'
}

# within KEY LOW HIGH: every value lies in (LOW, HIGH], and there is one.
within()
{
    figures "$1" | awk -v low="$2" -v high="$3" '{ n++; if (!($1 > low && $1 <= high)) bad = bad " " $1 }
        END { if (bad != "" || !n) { print (n ? bad : " none"); exit 1 } }' >"$work/bad" ||
        fail "$command_line: $1 is$(<"$work/bad"), expected more than $2 and at most $3"
}

# ---- the profile ----
mkdir "$work/folder"
echo old >"$work/folder/profile"
run calibrate --quick --out "$work/folder/profile"
expect_code 0
expect_out "GFLOP/s of a rank" gemm wgrad "passes over memory" "messages of two ranks, shm" \
    "overhead of a task" "profile: $work/folder/profile"
[ -z "$err" ] || fail "$command_line: expected nothing on standard error, found: $err"
expect_same "$command_line: files in the folder" "$(ls -A "$work/folder")" profile
cp "$work/folder/profile" "$work/profile"
valid_json <"$work/profile" || fail "$command_line: not JSON: $(head -c 300 "$work/profile")"
for text in '"format": "flashoverlap-machine-profile"' '"format_version": 2' '"source": "measured"' \
    '"quick": true' '"machine": {"version": ' '"processor": ' '"transport": "shm"' '"gemm": \[' '"wgrad": \[' \
    '"attention": \[' '"passes": \[' '"messages": \[' '"tasks": \[' '"peaks": \[' '"dtype": "f32"' \
    '"dtype": "bf16"' '"threads": 1' '"ranks_at_once": 1' '"ranks_at_once": 2' '"pattern": "one way"' \
    '"pattern": "exchange"' '"receive": "copy"' '"receive": "view"' '"calls": ' \
    '"date": "20[0-9-]*T[0-9:]*Z"' '"confidence": "\(high\|medium\|low\)"'; do
    grep -q "$text" "$work/profile" || fail "$command_line: no $text in the profile"
done
within time_s 0 5
within best_s 0 5
within spread_s -1e-12 5
within flops_per_s 1e6 1e15
within bytes_per_s 1e3 1e13
within efficiency 0 1
within latency_s 0 0.01
within samples 0 64
within calls 0 1000
for rows in 64 256 1024; do
    grep -q "\"k\": 1024, \"n\": 1024, \"rows\": $rows, \"dtype\": \"f32\", \"threads\": 1" "$work/profile" ||
        fail "$command_line: no product of $rows rows"
done

# ---- one rank, the other transport, JSON ----
run calibrate --quick --ranks 1 --transport self --json
expect_code 0
cp "$work/.out" "$work/profile"
valid_json <"$work/.out" || fail "$command_line: not JSON: $(head -c 300 "$work/.out")"
expect_out '"link": null' '"messages": []' '"transport": "self"'

# ---- what is refused, at once ----
begin=$SECONDS
run calibrate --out "$work/nowhere/profile"
expect_error 1 "$work/nowhere/profile" "can't be written"
run calibrate --out "$work/folder"
expect_error 1 "$work/folder is a directory"
run calibrate --quik
expect_error 2 "unknown option --quik, did you mean --quick?"
run calibrate --ranks 0
expect_error 2 "--ranks is '0'"
run calibrate --transport pigeon
expect_error 2 pigeon shm
run calibrate --kernel abacus
expect_error 2 abacus onednn
[ $((SECONDS - begin)) -le 5 ] || fail "refusing took $((SECONDS - begin)) s"

# ---- interrupted ----
command_line="flashoverlap calibrate, interrupted"
for to in parent group; do
    setsid "$program" calibrate --out "$work/folder/new" >"$work/.out" 2>"$work/.err" </dev/null &
    parent=$!
    sleep 2
    if [ $to = group ]; then
        kill -INT -- "-$parent"
    else
        kill -INT "$parent"
    fi
    code=0
    wait "$parent" || code=$?
    out=$(<"$work/.out")
    err=$(<"$work/.err")
    expect_error 130 interrupted "nothing was written"
    expect_same "$command_line: files in the folder" "$(ls -A "$work/folder")" profile
    sleep 0.2
    left=$(pgrep -g "$parent" || true)
    [ -z "$left" ] || fail "$command_line: processes are left: $left"
done

finish
