#!/usr/bin/env bash
# bench: the table, JSON, equal bits under every strategy.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

small=(--rows 200 --dim 48 --ffn 80 --repeat 3)
all=none,slice:4,ring,flash,flash:2,direct
for which in row column; do
    for pass in "" --backward; do
        for ranks in 1 2 3; do
            # shellcheck disable=SC2086
            run bench $which "${small[@]}" $pass --ranks $ranks --threads 1 --overlap $all --json
            expect_code 0
            valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
            expect_same "$command_line: rows" "$(number t_ms <"$work/.out" | wc -l)" 6
            expect_same "$command_line: equal bits" "$(number bitwise_equal <"$work/.out" | sort -u)" true
        done
    done
done
for key in overlap t_ms ect_ms hidden_pct exposed_ms bound_ms bitwise_equal; do
    expect_out "\"$key\""
done

run bench row "${small[@]}" --link auto:0.5 --overlap none,flash
expect_code 0
expect_out emulated "hidden %" none flash equal
run bench column "${small[@]}" --link 1GB/s,5us,mesh --overlap none,flash --dtype bf16 --wire bf16
expect_code 0
expect_out "1.000 GB/s"

finish
