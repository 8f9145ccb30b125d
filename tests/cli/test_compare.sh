#!/usr/bin/env bash
# train --compare: the table, JSON, files, Ctrl-C.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

make_text "$work/text" 2000
tiny=(train --data "$work/text" --layers 1 --heads 2 --dim 16 --context 16 --batch 4 --threads 1)

# ---- the table -------------------------------------------------------------------------------------------
for ranks in 2 3; do
    run "${tiny[@]}" --ranks $ranks --steps 4 --compare none,slice:2,flash --link 1GB/s,5us
    expect_code 0
    expect_out "overlap" "p10-p90 ms" "hidden %" "faster %" "link: emulated"
    expect_same "$command_line: equal losses" "$(grep -cE '^(none|slice:2|flash) .* equal ' "$work/.out")" 3
    expect_same "$command_line: columns" \
        "$(grep -E '^(overlap|none|slice|flash) ' "$work/.out" | sed -E 's/ +(equal|losses) .*//' | awk '{print length}' |
            sort -u | wc -l)" 1
done

run "${tiny[@]}" --steps 4 --compare none,slice:2,flash --json
expect_code 0
valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
expect_same "$command_line: bits" "$(number bitwise_equal <"$work/.out" | sort -u)" true
expect_same "$command_line: steps" "$(number steps <"$work/.out" | sort -u)" 4
expect_same "$command_line: interrupted" "$(number interrupted <"$work/.out" | sort -u)" false
# ECT = T - C, faster = 100 (1 - T / T of none), low <= median <= high
for key in t_ms t_p10_ms t_p90_ms ect_ms compute_ms faster_pct; do
    number $key <"$work/.out" >"$work/$key"
done
paste "$work"/{t_ms,t_p10_ms,t_p90_ms,ect_ms,compute_ms,faster_pct} |
    awk 'function apart(a, b, by) { return a - b > by || b - a > by }
        NR == 1 { none = $1 }
        apart($4, $1 - $5, 2e-4) || $2 > $1 || $1 > $3 || apart($6, 100 * (1 - $1 / none), 0.02 + 0.02 / none) {
            exit 1 }' || fail "$command_line: figures do not fit together: $out"

# ---- files -------------------------------------------------------------------------------------------------
run "${tiny[@]}" --steps 3 --compare none,flash --link auto:0.5 --trace "$work/trace.json" --report "$work/report.html"
expect_code 0
expect_file "$work/trace.json"
valid_json <"$work/trace.json" || fail "$command_line: the trace is not JSON"
expect_file "$work/report.html"
for text in none flash "equal to the bit under every strategy" "flashoverlap train --data"; do
    grep -q -- "$text" "$work/report.html" || fail "$command_line: no '$text' in the report"
done
: >"$work/file"
for option in trace report; do
    run "${tiny[@]}" --steps 1000000 --compare none,flash --$option "$work/file/below"
    expect_error 1 "$work/file/below"
    [ -z "$out" ] || fail "$command_line: trained before it looked at the file: $out"
    run "${tiny[@]}" --steps 2 --$option "$work/$option"
    expect_error 2 "--$option" "--compare"
done
run "${tiny[@]}" --steps 2 --compare none,flsh
expect_error 2 flsh flash
run "${tiny[@]}" --steps 2 --compare none,,flash
expect_error 2 "separated by commas"

# ---- Ctrl-C --------------------------------------------------------------------------------------------------
command_line="flashoverlap train --compare, interrupted"
setsid "$program" "${tiny[@]}" --steps 1000000 --compare none,flash --report "$work/interrupted.html" \
    >"$work/.out" 2>"$work/.err" </dev/null &
parent=$!
sleep 4
kill -INT "$parent"
code=0
wait "$parent" || code=$?
out=$(<"$work/.out") err=$(<"$work/.err")
expect_error 130 "interrupted after step" "of 1000000"
expect_out "none" "flash" "interrupted after step"
expect_file "$work/interrupted.html"
grep -qi interrupted "$work/interrupted.html" || fail "$command_line: the report does not say so"

finish
