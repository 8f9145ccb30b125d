#!/usr/bin/env bash
# Strategy auto and predictions: chosen, said and kept; the bits of none; spoilt and missing files.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

small=(--rows 600 --dim 96 --ffn 160 --threads 1 --repeat 2)
cache=$XDG_CACHE_HOME/flashoverlap

# ---- bench: what was taken, predicted beside measured ----
run bench row "${small[@]}" --link auto:0.5 --overlap none,flash,auto
expect_code 0
expect_out "predicted ms" "error %" "auto took "
[ "$(grep -c ' equal$' "$work/.out")" -eq 3 ] || fail "$command_line: not all bits are equal: $out"
run bench row "${small[@]}" --link auto:0.5 --overlap none,flash,auto --json
expect_code 0
valid_json <"$work/.out" || fail "$command_line: not JSON"
expect_same "$command_line: predictions" "$(number predicted_ms <"$work/.out" | grep -c '[0-9]')" 3
expect_same "$command_line: errors" "$(number prediction_error_pct <"$work/.out" | grep -c '[0-9]')" 3
expect_out '"taken": null' '"taken": "'
run bench mlp "${small[@]}" --overlap none+apart,auto,auto+apart --csv
expect_code 0
[ "$(head -n 1 "$work/.out" | tr , '\n' | grep -c predicted)" -eq 3 ] || fail "$command_line: no column: $out"
run bench column "${small[@]}" --backward --transport self --overlap none,auto --report "$work/page.html"
expect_code 0
grep -q 'predicted ms <span' "$work/page.html" || fail "$command_line: the page has no prediction"

run bench row --no-predict --rows 610 --dim 104 --ffn 160 --threads 1 --repeat 2 --overlap none,flash --json
expect_code 0
expect_out '"predicted_ms": null'

# more ranks than cores, over real links: they do what they measure together equally often, and soon
for family in openmpi mpich; do
    begin=$SECONDS
    XDG_CACHE_HOME=$work/other FO_LAUNCH_LIMIT=50 bash "$(dirname "$0")/../mpi/launch.sh" $family 3 \
        "$program" bench row --rows 512 --dim 128 --threads 1 --repeat 1 --overlap none,flash --deadline 20 --json \
        >"$work/json" 2>"$work/log" ||
        { [ $? -eq 77 ] && continue; fail "3 ranks of $family: $(cat "$work/log")"; }
    [ "$(number predicted_ms <"$work/json" | grep -c '[0-9]')" -eq 2 ] || fail "no predictions under $family"
    [ $((SECONDS - begin)) -le 30 ] || fail "3 ranks of $family took $((SECONDS - begin)) s"
done

# what is emulated is known without measuring; a link that takes no time is not worth a slice
run bench row --rows 4096 --ranks 4 --emulate 10ms,launch=20us --repeat 2 --overlap none,auto
expect_code 0
expect_out "auto took none"
run bench row --rows 4096 --ranks 4 --emulate 10ms --link auto:0.6 --repeat 3 --overlap none,flash --csv
expect_code 0
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    { print $c["overlap"], $c["predicted_ms"] }' "$work/.out" >"$work/table"
awk '{ if (($1 == "none" && ($2 < 15.5 || $2 > 17)) || ($1 == "flash" && ($2 < 9.9 || $2 > 11))) exit 1 }' \
    "$work/table" || fail "$command_line: predicted $(tr '\n' ' ' <"$work/table"), expected about 16 and 10 ms"

# ---- wisdom ----
[ "$(find "$cache" -name 'wisdom-*.txt' | wc -l)" -eq 2 ] || # of two transports
    fail "expected two files of wisdom in the cache, found: $(ls "$cache")"
wisdom=$(grep -l '^machine .*onednn.*1 thread | shm' "$cache"/*) || fail "no wisdom names the machine"
# what was measured on a busy machine is doubted where it is shown; where it is busy now nothing of the kind was kept
cp "$wisdom" "$work/kept"
if grep -q '^gemm:partial:f32 f32 ranks 2 .* n 96 is ' "$wisdom"; then
    sed -i -E 's/^(gemm:partial:f32 f32 ranks 2 .* n 96) is .*/\1 is 0.5/' "$wisdom"
    run bench row "${small[@]}" --overlap none,flash
    expect_code 0
    expect_out "predicted: the computation alone +" "calibrate --forget"
fi
cp "$work/kept" "$wisdom"
printf 'gemm rubbish\n' >>"$wisdom"
run bench row "${small[@]}" --overlap none,auto
expect_code 0
expect_out "auto took "
chmod 500 "$cache" # what can't be kept serves all the same
run bench row --rows 700 --dim 40 --ffn 80 --threads 1 --repeat 1 --overlap none,auto
expect_code 0
chmod 700 "$cache"

# ---- train: the same losses ----
make_text "$work/text" 400
for overlap in none auto; do
    run train --data "$work/text" --layers 1 --heads 2 --dim 32 --context 32 --batch 4 --steps 3 --threads 1 \
        --eval-every 0 --link 50MB/s --overlap $overlap --log "$work/$overlap.log"
    expect_code 0
done
expect_same "losses of auto and none" "$(number loss <"$work/auto.log")" "$(number loss <"$work/none.log")"
expect_out "waits" "predicted"
run train --data "$work/text" --layers 1 --heads 2 --dim 32 --context 32 --batch 4 --steps 3 --threads 1 \
    --link 50MB/s --compare none,auto
expect_code 0
expect_out "predicted ms" "error %"
[ "$(grep -c '  equal  ' "$work/.out")" -eq 2 ] || fail "$command_line: losses differ: $out"

# ---- forgetting ----
run calibrate --forget
expect_code 0
[[ "$out" =~ ^[1-9][0-9]*\ files?\ removed$ ]] || fail "$command_line: said '$out'"
[ -z "$(ls "$cache")" ] || fail "$command_line: left $(ls "$cache")"
run calibrate --forget
expect_out "0 files removed"

# ---- profiles ----
run calibrate --quick --threads 1
expect_code 0
profile=$(ls "$cache")
[[ "$profile" == profile-*.json ]] || fail "$command_line: expected a profile in the cache, found: $profile"
expect_out "profile: $cache/$profile"
run bench row "${small[@]}" --overlap none,auto --profile "$cache/$profile"
expect_code 0
run schedule row --ranks 2 --rows 2048 --overlap auto --machine "$cache/$profile" --dim 512 --dtype f32
expect_code 0
expect_out "auto on "
sed 's/"task_s": {"value": [^,]*/"task_s": {"value": -1/' "$cache/$profile" >"$work/bad.json"
run bench row "${small[@]}" --overlap none,auto --profile "$work/bad.json"
expect_error 2 "software.task_s.value is -1"
run train --data "$work/text" --overlap auto --profile "$work/nowhere.json"
expect_error 1 "nowhere.json"
FLASHOVERLAP_PROFILE=$work/bad.json run bench row "${small[@]}" --overlap none,auto
expect_error 1 "software.task_s.value is -1"

# ---- schedule ----
run schedule row --overlap auto
expect_error 2 "expected one: --machine"
run schedule row --overlap auto --machine pigeon
expect_error 2 pigeon a100-sxm
run schedule mlp --ranks 8 --rows 65536 --overlap auto --machine a100-sxm --json
expect_code 0
valid_json <"$work/.out" || fail "$command_line: not JSON"
# where every slice begins with a launch and links are fast, slicing loses
field() # value
{
    echo "{\"value\": $1, \"source\": \"this test\", \"confidence\": \"model\"}"
}
cat >"$work/launches.json" <<END
{"format": "flashoverlap-machine-profile", "format_version": 2, "name": "launches", "about": "launches",
 "device": {"bf16_flops_per_s": $(field 1e14), "launch_s": $(field 1e-3)},
 "network": {"topology": $(field '"switch"'), "bytes_per_s": $(field 1e12), "latency_s": $(field 1e-6)}}
END
run schedule mlp --ranks 2 --rows 512 --overlap auto --machine "$work/launches.json" --dim 512
expect_code 0
expect_out "do not overlap" "none: 2 ranks"

finish
