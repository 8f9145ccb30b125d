#!/usr/bin/env bash
# Ctrl-C saves and leaves nothing behind; a killed rank ends all, with its number and cause.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_text "$work/text" 3000
model=(--data "$work/text" --layers 2 --heads 2 --dim 32 --context 32 --batch 4 --eval-every 0)

# start WORDS...: the program in the background; waits until it has taken a step.
start()
{
    command_line="flashoverlap $*"
    rm -f "$work/log"
    setsid "$program" "$@" --log "$work/log" >"$work/.out" 2>"$work/.err" </dev/null &
    parent=$!
    for _ in $(seq 300); do
        [ -s "$work/log" ] && return 0
        sleep 0.1
    done
    fail "$command_line: no step within 30 s: $(<"$work/.err")"
}

# end SECONDS: waits for it to end by itself.
end()
{
    for _ in $(seq "$((${1} * 10))"); do
        if ! kill -0 "$parent" 2>/dev/null; then
            code=0
            wait "$parent" || code=$?
            err=$(<"$work/.err")
            return 0
        fi
        sleep 0.1
    done
    kill -KILL -- "-$parent" 2>/dev/null || true
    fail "$command_line: still running after $1 s"
    code=-1 err=
}

nothing_left()
{
    sleep 0.2
    local left
    left=$(pgrep -g "$parent" || true)
    [ -z "$left" ] || fail "$command_line: processes are left: $left"
    left=$(find /dev/shm -maxdepth 1 -newer "$work/text" -user "$(id -u)" -name '*flash*' 2>/dev/null || true)
    [ -z "$left" ] || fail "$command_line: files are left: $left"
    left=$(find "$work" -name '.tmp*' -o -name '*.tmp')
    [ -z "$left" ] || fail "$command_line: files are left: $left"
}

for signal in INT TERM; do
    for to in parent group; do
        start train "${model[@]}" --steps 1000000 --out "$work/model"
        if [ $to = group ]; then
            kill -$signal -- "-$parent"
        else
            kill -$signal "$parent"
        fi
        end 20
        expect_code 130
        [[ "$err" == *"--resume $work/model"* ]] || fail "$command_line ($signal to $to): it said: $err"
        expect_file "$work/model/latest"
        nothing_left
    done
done

# what was saved is whole
run train "${model[@]}" --steps 1000000 --resume "$work/nothing" --quiet
expect_error 1 "$work/nothing"
step=$(sed 's/[^0-9]//g' "$work/model/latest")
run train "${model[@]}" --steps $((10#$step + 2)) --resume "$work/model" --quiet
expect_code 0

# every other rank ends within 10 s of a rank's death
start train "${model[@]}" --steps 1000000 --ranks 3 --threads 1
sleep 0.3
victim=$(pgrep -P "$parent" | sed -n 2p)
[ -n "$victim" ] || fail "$command_line: no forked ranks were found"
kill -KILL "$victim"
end 12
expect_code 1
[[ "$err" == *"rank 1"* ]] || fail "$command_line: expected the killed rank's number in: $err"
[[ "$err" == *"; nothing was saved: use --out and --save-every" ]] || fail "$command_line: expected last words in: $err"
[[ "${err,,}" == *kill* || "$err" == *"signal 9"* ]] || fail "$command_line: expected the cause in: $err"
nothing_left

# what was saved until then is named
rm -rf "$work/model"
start train "${model[@]}" --steps 1000000 --ranks 2 --threads 1 --out "$work/model" --save-every 1
for _ in $(seq 100); do
    [ ! -e "$work/model/latest" ] || break
    sleep 0.1
done
kill -KILL "$(pgrep -P "$parent" | sed -n 2p)"
end 12
expect_code 1
[[ "$err" == *"; go on with --resume $work/model (step "*")" ]] || fail "$command_line: expected last words in: $err"
rm -rf "$work/model" # where the other rank may have been saving

# the launching process is killed: its ranks end too
start train "${model[@]}" --steps 1000000 --ranks 2
kill -KILL "$parent"
wait "$parent" 2>/dev/null || true
for _ in $(seq 50); do
    [ -n "$(pgrep -g "$parent" || true)" ] || break
    sleep 0.1
done
nothing_left

finish
