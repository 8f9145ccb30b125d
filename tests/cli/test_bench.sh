#!/usr/bin/env bash
# bench: every subject, equal bits, JSON and CSV that agree, figures that agree with each other, points that
# can't be done, files, Ctrl-C.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

small=(--dim 48 --repeat 3 --threads 1)
sequences=(--batch 3 --context 50 --heads 6)

# check_figures JSON CSV: both say the same, and the figures follow from each other (docs/metrics.md).
check_figures()
{
    command -v python3 >/dev/null || return 0
    python3 - "$1" "$2" <<'PYTHON' || fail "$command_line: figures do not fit together"
import csv, json, sys
rows = json.load(open(sys.argv[1]))
table = list(csv.DictReader(open(sys.argv[2])))
assert rows and len(rows) == len(table), "as many rows"
plain = lambda v: "" if v is None else str(v).lower() if isinstance(v, bool) else v
for row, line in zip(rows, table):
    assert list(row) == list(line), "the same keys"
    for key in ("subject", "point", "overlap", "computation", "link", "bitwise_equal", "rows"):
        assert str(plain(row[key])) == line[key], (key, row[key], line[key])
def near(a, b, by):
    assert abs(a - b) <= by, (a, b, by)
points = {}
for row in rows:
    points.setdefault(row["point"], []).append(row)
for rows in points.values():
    none = [r for r in rows if r["overlap"] == "none" and r["t_ms"] is not None]
    for r in rows:
        assert (r["t_ms"] is None) == (r["note"] is not None), "figures or a note"
        if r["t_ms"] is None:
            assert all(r[k] is None for k in ("ect_ms", "bound_ms", "gap_pct", "bitwise_equal"))
            continue
        assert r["t_p10_ms"] <= r["t_ms"] <= r["t_p90_ms"]
        assert r["bound_ms"] >= r["compute_ms"] - 1e-4 and r["exposed_ms"] >= 0
        near(r["ect_ms"], r["t_ms"] - r["compute_ms"], 2e-4)
        near(r["gap_pct"], 100 * (r["t_ms"] / r["bound_ms"] - 1), 0.02 + 0.02 * r["t_ms"] / r["bound_ms"] ** 2)
        if not none:
            assert r["hidden_pct"] is None and r["faster_pct"] is None
            continue
        of = none[0]
        near(r["faster_pct"], 100 * (1 - r["t_ms"] / of["t_ms"]), 0.02 + 0.02 * r["t_ms"] / of["t_ms"] ** 2)
        if of["ect_ms"] > 0.05:
            near(r["hidden_pct"], 100 * (1 - r["ect_ms"] / of["ect_ms"]), 1 + abs(r["hidden_pct"]) / 50)
PYTHON
}

# measure ROWS WORDS...: JSON and CSV of the same command, equal bits in as many rows.
measure()
{
    local wanted=$1
    shift
    run bench "$@" --csv
    expect_code 0
    cp "$work/.out" "$work/table.csv"
    run bench "$@" --json
    expect_code 0
    valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
    expect_same "$command_line: rows" "$(number t_ms <"$work/.out" | grep -vc null)" "$wanted"
    expect_same "$command_line: bits" "$(number bitwise_equal <"$work/.out" | grep -v null | sort -u)" true
    cp "$work/.out" "$work/table.json"
    check_figures "$work/table.json" "$work/table.csv"
}

# ---- subjects ------------------------------------------------------------------------------------------
for which in row column; do
    for pass in "" --backward; do
        for ranks in 1 2 3; do
            # shellcheck disable=SC2086
            measure 6 $which --rows 200 --ffn 80 "${small[@]}" $pass --ranks $ranks \
                --overlap none,slice:4,ring,flash,flash:2,direct
        done
    done
done
for ranks in 2 3; do
    measure 3 column --backward --rows 200 "${small[@]}" --ranks $ranks --overlap none,flash+apart,flash
    for pass in "" --backward; do
        # shellcheck disable=SC2086
        measure 6 mlp --rows 201 "${small[@]}" $pass --ranks $ranks \
            --overlap none,none+apart,slice:3+apart,flash+apart,flash,direct
        # shellcheck disable=SC2086
        measure 5 attention "${sequences[@]}" "${small[@]}" $pass --ranks $ranks \
            --overlap none,none+row,slice:3,flash+row,flash
    done
    measure 3 layer "${sequences[@]}" "${small[@]}" --ranks $ranks --overlap none,slice:2,flash
    measure 3 step "${sequences[@]}" "${small[@]}" --ranks $ranks --overlap none,slice:2,flash --link 1GB/s
done
measure 2 attention --batch 4 --context 40 "${small[@]}" --heads 6 --overlap none,flash --order balanced
measure 2 mlp --rows 128 "${small[@]}" --overlap none,flash --dtype bf16 --wire bf16 --link auto:0.5,5us,mesh --ranks 3
measure 2 row --rows 128 "${small[@]}" --overlap none,flash --transfer 2ms
expect_out '"link": "emulated"' '"computation": "measured"'

# ---- text ----------------------------------------------------------------------------------------------
run bench row --rows 200 "${small[@]}" --link auto:0.5 --overlap none,flash
expect_code 0
expect_out emulated "hidden %" "faster %" "p10-p90" none flash equal "of the computation"
[[ "$out" != *$'\033'* ]] || fail "$command_line: colour in a file"
[ -z "$err" ] || fail "$command_line: nobody looks, but it said: $err"
# columns: every line of the table is as long as its heading, up to the last column
run bench mlp --rows 200 "${small[@]}" --overlap none,slice:3+apart,flash --link 1GB/s
expect_same "$command_line: columns" \
    "$(grep -E '^(overlap|none|slice|flash)' "$work/.out" | sed -E 's/ +[a-z]+$//' | awk '{print length}' | sort -u | wc -l)" 1
run bench column --rows 100 "${small[@]}" --link 1GB/s,5us,mesh --overlap none,flash --dtype bf16 --wire bf16
expect_code 0
expect_out "1.000 GB/s" "5.0 us" mesh

# ---- sweeps, and what can't be done ----------------------------------------------------------------------
run bench mlp "${small[@]}" --sweep 4x16,2x32,1x500000000 --overlap none,flash
expect_code 0
expect_out "4 x 16 (64 rows)" "2 x 32" "1 x 500000000" "are needed" "are available"
measure 4 mlp "${small[@]}" --sweep 4x16,1x500000000,2x32 --overlap none,flash
run bench mlp "${small[@]}" --sweep 4x16,1x500000000 --overlap none,flash --json
expect_code 0
expect_same "notes" "$(number note <"$work/.out" | grep -c null)" 2
run bench mlp "${small[@]}" --sweep 1x500000000 --overlap none,flash --report "$work/nothing.html"
expect_error 1 "nothing was measured" "are needed"
expect_file "$work/nothing.html"
run bench attention "${small[@]}" --heads 7 --overlap flash
expect_error 1 "nothing was measured" "--dim 48" "multiple of --heads, such as 49"

# ---- emulated computation ----------------------------------------------------------------------------------
emulated=(mlp --rows 4096 --dim 1024 --ranks 3 --repeat 1 --overlap none,flash --emulate 8ms,launch=5us --transfer 4ms)
run bench "${emulated[@]}"
expect_code 0
expect_out "emulated computation"
expect_same "$command_line: rows that say so" "$(grep -c 'emulated computation$' "$work/.out")" 2
[[ "$out" != *equal* ]] || fail "$command_line: bits of what was not computed: $out"
run bench "${emulated[@]}" --json
expect_code 0
expect_same "$command_line: computation" "$(grep -c '"computation": "emulated"' "$work/.out")" 2
expect_same "$command_line: bits" "$(number bitwise_equal <"$work/.out" | sort -u)" null

# ---- bad words ---------------------------------------------------------------------------------------------
run bench row --rows 64 "${small[@]}" --overlap flash+apart
expect_error 2 "'+apart' is no form of row" "no '+' behind it"
run bench mlp --rows 64 "${small[@]}" --overlap none,flash+row
expect_error 2 "'+row' is no form of mlp, expected flash or flash+apart"
run bench mlp --rows 64 "${small[@]}" --overlap flash+apart+apart
expect_error 2 "'+apart+apart' is no form"
run bench mlp --rows 64 "${small[@]}" --overlap flsh+apart
expect_error 2 flsh flash
run bench mlp --rows 64 "${small[@]}" --overlap none,
expect_error 2 "separated by commas"
run bench mlp "${small[@]}" --sweep 4x16,8
expect_error 2 "--sweep '4x16,8'" "16x512,8x1024"
run bench mlp "${small[@]}" --sweep 4x16, --rows 3
expect_error 2 "--rows" "--sweep"
run bench step --rows 64 "${small[@]}"
expect_error 2 "--batch and --context"
run bench step --backward "${sequences[@]}" "${small[@]}"
expect_error 2 "--backward"
run bench mlp --rows 64 "${small[@]}" --emulate fast
expect_error 2 "'fast'" "78.5ms"
run bench mlp --rows 64 "${small[@]}" --emulate 8ms --kernel onednn
expect_error 2 "--kernel onednn" "--emulate"
run bench mlp --rows 64 "${small[@]}" --kernel emulated
expect_error 2 "--kernel emulated needs a device"
run bench attention "${sequences[@]}" "${small[@]}" --order upside-down
expect_error 2 "--order is 'upside-down', expected straight or balanced"
run bench mlp --rows 64 "${small[@]}" --transfer soon
expect_error 2 "--transfer is 'soon', expected a time"
run bench mlp --rows 64 "${small[@]}" --transfer 2ms --link 1GB/s
expect_error 2 "--transfer" "--link"
run bench mlp --rows 64 "${small[@]}" --json --csv
expect_error 2 "--json and --csv"
run bench mlp --rows 64 "${small[@]}" --kernel abacus
expect_error 2 abacus

# ---- files ---------------------------------------------------------------------------------------------
: >"$work/file"
for option in trace report; do
    run bench row --rows 64 "${small[@]}" --$option "$work/file/below"
    expect_error 1 "$work/file/below"
    [ -z "$out" ] || fail "$command_line: measured before it looked at the file: $out"
done
run bench mlp "${small[@]}" --sweep 1x500000000,4x16 --overlap none,flash+apart,flash \
    --trace "$work/trace.json" --report "$work/report.html"
expect_code 0
expect_file "$work/trace.json"
valid_json <"$work/trace.json" || fail "$command_line: the trace is not JSON"
grep -q "flash+apart" "$work/trace.json" || fail "$command_line: the trace does not name flash+apart"
expect_file "$work/report.html"
for text in "flash+apart" "4 x 16" "1 x 500000000" "flashoverlap bench mlp" "are needed"; do
    grep -q "$text" "$work/report.html" || fail "$command_line: no '$text' in the report"
done

# ---- Ctrl-C --------------------------------------------------------------------------------------------
command_line="flashoverlap bench, interrupted"
setsid "$program" bench row --rows 512 --dim 128 --repeat 100000 --threads 1 --overlap none,flash \
    --report "$work/interrupted.html" >"$work/.out" 2>"$work/.err" </dev/null &
parent=$!
sleep 4
kill -INT "$parent"
code=0
wait "$parent" || code=$?
out=$(<"$work/.out") err=$(<"$work/.err")
expect_error 130 interrupted
expect_out "none" "flash" "interrupted: medians of"
expect_file "$work/interrupted.html"
grep -qi interrupted "$work/interrupted.html" || fail "$command_line: the report does not say so"

finish
