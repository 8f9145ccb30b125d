#!/usr/bin/env bash
# schedule: the tables of the paper, the verdict, JSON.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

for which in row column row-backward column-backward; do
    for overlap in none slice:4 ring flash flash:2 direct direct:2; do
        for ranks in 1 2 3 4; do
            run schedule $which --ranks $ranks --overlap $overlap
            expect_code 0
            [ -n "$out" ] || fail "$command_line printed nothing"
            [ -z "$err" ] || fail "$command_line complained: $err"
        done
        run schedule $which --ranks 3 --rows 7 --overlap $overlap --json
        expect_code 0
        valid_json <"$work/.out" || fail "$command_line: not JSON: $out"
    done
done

# The order of computation of every rank, steps 0 to 3, from algorithms written down independently:
# row: shard (r - 1 - i) mod N; column: shard (r - i) mod N.
if command -v python3 >/dev/null; then
    for which in row column; do
        run schedule $which --ranks 4 --overlap flash --json
        python3 - "$which" "$work/.out" <<'P' || fail "$command_line: another order than the paper's"
import json, sys
which, path = sys.argv[1:]
programs = json.load(open(path))["programs"]
assert len(programs) == 4
for r, program in enumerate(programs):
    computed = [t["shard"] for t in program["tasks"] if t["kind"] == "compute"]
    shards = [s for i, s in enumerate(computed) if i == 0 or computed[i - 1] != s]
    expected = [(r - i - (which == "row")) % 4 for i in range(4)]
    assert shards == expected, (r, shards, expected)
P
    done
fi

# fewer rows than ranks
run schedule row --ranks 5 --rows 3
expect_code 0
run schedule column --ranks 9 --rows 0
expect_code 0

finish
