#!/usr/bin/env bash
# simulate: tables, JSON, CSV, files, Chakra traces, and what is said of input that makes no sense.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
here=$(dirname "$0")

# column NAME: a column of the CSV in `out`, its values one a line
column()
{
    awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }' \
        <<<"$out"
}

sizes=(--batch 2 --context 2048 --dim 4096 --ffn 14336 --heads 32)

run simulate --help
expect_code 0
expect_out "Usage: flashoverlap simulate row|column|mlp|attention|step" --machine --model --chakra
[ "$(wc -l <"$work/.out")" -le 40 ] || fail "simulate --help has more than 40 lines"
[ "$(wc -L <"$work/.out")" -le 80 ] || fail "simulate --help has a line over 80 columns"

# ---- operations --------------------------------------------------------------------------------------
for what in row column mlp attention; do
    for pass in "" --backward; do
        run simulate $what $pass --machine a100-sxm --ranks 4 "${sizes[@]}" --explain
        expect_code 0
        expect_out "simulated on a100-sxm, no rank was started" "T ms" "hidden %" "bound ms" "X ms" imbalance \
            contention tail flash "computation alone"
        [[ "$out" == *"overlap with "* || "$out" == *"do not overlap: "* ]] || fail "$command_line: no verdict: $out"
        [ -z "$err" ] || fail "$command_line complained: $err"
        [ "$(wc -L <"$work/.out")" -le 120 ] || fail "$command_line: a line over 120 columns"
        run simulate $what $pass --machine a100-sxm --ranks 4 "${sizes[@]}" --explain --json
        expect_code 0
        valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
        expect_out '"computation": "simulated"' '"machine": "a100-sxm"' '"overlap": "flash"' '"tail_ms"'
    done
done

# the same figures in both forms, and the same again
run simulate mlp --machine a100-sxm --ranks 4 "${sizes[@]}" --overlap none,flash,flash+apart,auto --csv
expect_code 0
expect_same overlaps "$(column overlap | paste -sd' ')" "none flash flash+apart auto"
times=$(column t_ms)
run simulate mlp --machine a100-sxm --ranks 4 "${sizes[@]}" --overlap none,flash,flash+apart,auto --json
expect_same "T as CSV and as JSON" "$times" "$(number t_ms <"$work/.out")"

# auto is never slower than none by more than what it is chosen by
slower=$(awk 'NR == 1 { none = $1 } NR == 4 && $1 > none * 1.0101 { print $1 }' <<<"$times")
[ -z "$slower" ] || fail "auto takes $slower ms: $times"

# a transfer of half the computation; a slow rank; machines
run simulate row --machine a100-sxm --ranks 4 "${sizes[@]}" --overlap none --link auto:0.5 --csv
expect_same "X of C" "$(paste <(column transfer_ms) <(column compute_ms) | awk '{ printf "%.4f", $1 / $2 }')" 0.5000
run simulate row --machine a100-sxm --ranks 4 "${sizes[@]}" --overlap none --transfer 43.8ms --csv
expect_same X "$(column transfer_ms | awk '{ printf "%.3f", $1 }')" 43.800
fast=$(column t_ms)
run simulate row --machine a100-sxm --ranks 4 "${sizes[@]}" --overlap none --transfer 43.8ms --slow-rank 3:0.1 --csv
awk -v a="$fast" -v b="$(column t_ms)" 'BEGIN { exit !(b > a) }' || fail "a slow rank costs nothing"
run simulate row --machine a100-sxm --ranks 16 --nodes 2 --outer 25GB/s,5us "${sizes[@]}"
expect_code 0
expect_out "ranks: 16 on 2 machines" "between machines 25.0 GB/s, 5.0 us" hier

# one rank, many ranks
run simulate row --machine a100-sxm --ranks 1 "${sizes[@]}"
expect_code 0
expect_out "one rank has nothing to communicate"
run simulate row --machine h100-sxm-ndr --ranks 1024 --batch 256 --context 4096 --dim 8192 --ffn 1048576 --overlap none,flash
expect_code 0

# ---- files -------------------------------------------------------------------------------------------
run simulate row --machine a100-sxm --ranks 4 "${sizes[@]}" --overlap none,slice:4,flash --trace "$work/t.json" \
    --report "$work/r.html" --chakra "$work/traces" --csv
expect_code 0
bytes=$(column wire_bytes | sort -n | tail -1)
compute=$(column compute_ms | head -1)
expect_file "$work/t.json"
valid_json <"$work/t.json" || fail "the trace is not JSON"
grep -q 'flash, simulated a100-sxm rank 3' "$work/t.json" || fail "the trace does not say that it is simulated"
grep -q 'Simulated' "$work/r.html" || fail "the report does not say that it is simulated"
expect_same "the files of the traces" "$(cd "$work/traces" && ls | paste -sd' ')" \
    "$(printf 'row-forward-%s.et ' {flash,none,slice-4}.{0,1,2,3} | sed 's/ $//')"
if command -v python3 >/dev/null; then
    for strategy in none slice-4 flash; do
        said=$(python3 "$here/chakra.py" "$work/traces/row-forward-$strategy" 4) ||
            fail "the Chakra traces of $strategy: $said"
        [[ "$said" == "sent $bytes bytes, "* ]] || fail "Chakra, $strategy: $said, the table: $bytes"
        us=$(sed -E 's/.*computed ([0-9]+) us.*/\1/' <<<"$said")
        awk -v us="$us" -v ms="$compute" 'BEGIN { exit !(us > 990 * ms && us < 3000 * ms) }' ||
            fail "Chakra, $strategy: $us us of computation, alone it takes $compute ms"
    done
fi
for what in "mlp --backward" "attention" "column --backward"; do
    # shellcheck disable=SC2086
    run simulate $what --machine a100-sxm --ranks 3 --batch 3 --context 500 --dim 1024 --heads 16 --overlap flash,ring \
        --chakra "$work/more"
    expect_code 0
done
if command -v python3 >/dev/null; then
    for name in mlp-backward attention-forward column-backward; do
        for strategy in flash ring; do
            python3 "$here/chakra.py" "$work/more/$name-$strategy" 3 >/dev/null || fail "Chakra: $name, $strategy"
        done
    done
fi

# Played back by somebody else, the traces take as long as was simulated: links and computation, in turn the longer.
if command -v python3 >/dev/null; then
    for speed in 20 300; do
        for what in row "column --backward" "mlp --backward"; do
            # shellcheck disable=SC2086
            run simulate $what --machine ideal --link ${speed}GB/s,0us --ranks 4 --batch 8 --context 2048 --dim 8192 \
                --ffn 28672 --overlap none,slice:4,ring,flash,direct:2 --chakra "$work/played" --csv
            expect_code 0
            while read -r overlap t; do
                name=${what% --*}-$([ "$what" = row ] && echo forward || echo backward)-${overlap/:/-}
                said=$(python3 "$here/chakra.py" "$work/played/$name" 4 ${speed}e9) || fail "$name: $said"
                awk -v a="$t" -v b="${said#*played in }" 'BEGIN { b += 0; exit !(b > 0.995 * a && b < 1.005 * a) }' ||
                    fail "$name at $speed GB/s: simulated in $t ms, $said"
            done < <(paste -d' ' <(column overlap) <(column t_ms))
        done
    done
fi

# nothing is left beside, nothing is half written
leftovers=$(find "$work" -name '.tmp-*')
[ -z "$leftovers" ] || fail "left over: $leftovers"
: >"$work/file"
run simulate row --machine a100-sxm --chakra "$work/file"
expect_error 1 "$work/file" "is no folder"
run simulate row --machine a100-sxm --trace "$work/nowhere/t.json"
expect_error 1 "$work/nowhere/t.json"
run simulate row --machine a100-sxm --ranks 2048 --rows 4096 --overlap none --chakra "$work/many"
expect_error 2 "--chakra writes a file a rank" "at most 1024 ranks"
[ ! -e "$work/many" ] || fail "a folder was made for traces that are not written"
[ -z "$out" ] || fail "$command_line: simulated before it was asked whether the files can be: $out"
run simulate row --machine a100-sxm --chakra "$work/$(printf 'x%.0s' {1..4000})"
expect_error 2 "--chakra: the path of the folder has"
run simulate row --machine a100-sxm --trace "$work/x" --report "$work/x"
expect_error 2 "expected a file each"
[ ! -e "$work/x" ] || fail "a file was made before it was known whether it can be"

# ---- steps -------------------------------------------------------------------------------------------
step=(simulate step --model llama3-70b --machine h100-sxm-ndr --tp 8 --pp 4 --batch 64 --ranks 64)
run "${step[@]}" --explain
expect_code 0
expect_out "training step of" "tp 8 x dp 2 x pp 4" "step time" MFU HFU "nothing overlapped" "with data slicing" \
    "memory of a rank" "(tp)" "(dp)" "(pp)" tail "no rank was started"
run "${step[@]}" --json
expect_code 0
valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
expect_out '"computation": "simulated"' '"step_s"' '"operations"' '"tp_exposed_s"'
run "${step[@]}" --recompute full --overlap none --json
expect_code 0
expect_out '"recompute": "full"' '"overlap": "none"'
run simulate step --machine h100-sxm --ranks 8 --tp 8 --layers 4 --dim 2048 --heads 16 --vocabulary 32000 --context 2048 \
    --batch 8
expect_code 0
expect_out "tp 8 x dp 1 x pp 1" "ffn 8192"

# links instead of the profile's
run "${step[@]}" --json
profile_s=$(number step_s <"$work/.out")
run "${step[@]}" --outer 1GB/s,5us --json
expect_code 0
expect_out '"outer_bytes_per_s": 1e+09'
awk -v a="$profile_s" -v b="$(number step_s <"$work/.out")" 'BEGIN { exit !(b > 1.05 * a) }' ||
    fail "a slow link between machines costs nothing"
run "${step[@]}" --link 20GB/s,5us,mesh
expect_code 0
expect_out "link: mesh, 20.0 GB/s, 5.0 us; between machines 48.5 GB/s"
run simulate step --model llama3-8b --machine h100-sxm --tp 8 --batch 8 --outer 1GB/s
expect_error 2 "h100-sxm is one machine" "or --link"
run "${step[@]}" --link auto:0.5
expect_error 2 "--link auto: follows from one operation's one link"
run simulate row --machine a100-sxm --outer auto:0.5
expect_error 2 "--outer auto:"

# ---- what makes no sense -----------------------------------------------------------------------------
run simulate
expect_error 2 "expected row, column, mlp, attention or step"
run simulate row
expect_error 2 "--machine is missing" a100-sxm h100-sxm
run simulate row --machine abacus
expect_error 2 abacus a100-sxm
run simulate row --machine a100-sxm --ranks 12 --nodes 5
expect_error 2 "--ranks 12" "--nodes 5"
run simulate row --machine a100-sxm-hdr --ranks 12
expect_error 2 "--ranks 12" "expected 8 or 16"
run simulate row --machine a100-sxm --overlap none,flsh
expect_error 2 flsh flash
run simulate row --machine a100-sxm --overlap flash+row
expect_error 2 "'+row' is no form of row"
run simulate row --machine a100-sxm --slow-rank 3
expect_error 2 "--slow-rank is '3'" "3:0.8"
run simulate row --machine a100-sxm --slow-rank 9:0.5
expect_error 2 "rank 9 of 8"
for slow in 1:0 1:-1 1:nan 1:inf 1:1e308 1:1e-308 1:1e-4 -1:0.5 1.5:0.5 ' 1:0.5' 1: :0.5 1:0,5 99999999999999999999:0.5; do
    run simulate row --machine a100-sxm --slow-rank="$slow"
    expect_error 2 "--slow-rank is '$slow', expected a rank and its speed"
done
for slow in 1:0.001 1:1000; do
    run simulate row --machine a100-sxm --slow-rank $slow --csv
    expect_code 0
    [[ "$out" != *inf* && "$out" != *nan* ]] || fail "$command_line: $out"
done
run "${step[@]}" --slow-rank 8:0.5
expect_error 2 "slow_rank is 8 of tp 8"
run "${step[@]}" --slow-rank 1:2
expect_error 2 "slow_speed is 2, expected 0.001 to 1"
run simulate row --machine a100-sxm --link 1e-300B/s
expect_error 2 "--link is '1e-300B/s'"
run simulate row --machine a100-sxm --transfer 1e-300s
expect_error 2 "--transfer is '1e-300s'"
run simulate row --machine h100-sxm --rows 1 --overlap none,slice:2
expect_code 0
expect_out "nothing that was simulated overlaps"
run simulate attention --machine a100-sxm --heads 3
expect_error 2 "--dim 1024 can't be split into 3 heads"
run simulate row --machine a100-sxm --link 1GB/s --transfer 3ms
expect_error 2 "expected one of them"
run simulate row --machine a100-sxm --tp 2
expect_error 2 "--tp goes with step"
run simulate step --machine a100-sxm --trace t.json
expect_error 2 "--trace goes with row, column, mlp and attention"
run simulate step --machine h100-sxm
expect_error 2 "--model is missing"
run simulate step --machine h100-sxm --model llama9
expect_error 2 llama9 llama3-70b
run "${step[@]}" --ranks 100
expect_error 2 "--ranks 100 is no multiple of --tp 8 x --pp 4 = 32, expected e.g. --ranks 96"
[[ "$err" != *--dp* ]] || fail "$command_line names what nobody gave: $err"
run simulate attention --machine a100-sxm --batch 1000000000 --context 1000000000
expect_error 2 "--batch 1000000000 x --context 1000000000" "--batch of at most 1000"
run "${step[@]}" --dp 3
expect_error 2 "--ranks 64" "expected that product"
run simulate step --model llama3-70b
expect_error 2 "--machine is missing"

finish
