#!/usr/bin/env bash
# A training step of flashoverlap and of PyTorch on the same cores, model, sizes and text, in turns.
#   bench/against_torch.sh [OPTIONS]
# Every round starts each program anew, drops its first steps and times the next; the order is the same in every
# round. PyTorch is run in the forms of bench/torch_step.py; those that fail here are named and left out.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=$root/build venv=$root/build/torch data=${DATA:-} rounds=3 steps=3 warmup=1 dtypes=bf16,f32 ranks=2
layers=12 heads=12 dim=768 context=512 batch=4 json='' profile=1

usage()
{
    cat <<EOF
Usage: bench/against_torch.sh [OPTIONS]
  --build DIR      a build folder, made when it is not there (build)
  --venv DIR       a Python environment with PyTorch, made by bench/torch_setup.sh (build/torch)
  --data FILE      a text (default: \$DATA, or the King James Bible)
  --dtype LIST     bf16,f32
  --rounds N       turns ($rounds)
  --steps N        timed steps of a turn ($steps)
  --warmup N       steps dropped before them ($warmup)
  --ranks N        ranks of flashoverlap and of PyTorch's tensor parallel form, one thread each ($ranks)
  --layers, --heads, --dim, --context, --batch N     ($layers, $heads, $dim, $context, $batch)
  --no-profile     without the profile of flashoverlap (perf)
  --json           an array of objects instead of tables
EOF
}

while [ $# -gt 0 ]; do
    case $1 in
    --build | --venv | --data | --rounds | --steps | --warmup | --ranks | --layers | --heads | --dim | \
        --context | --batch)
        [ $# -gt 1 ] || { echo "bench/against_torch.sh: $1 needs a value" >&2; exit 2; }
        declare "${1#--}=$2"
        shift 2
        ;;
    --dtype)
        dtypes=${2:?bench/against_torch.sh: --dtype needs a value}
        shift 2
        ;;
    --json) json=1 && shift ;;
    --no-profile) profile='' && shift ;;
    --help) usage && exit 0 ;;
    *)
        echo "bench/against_torch.sh: '$1' is unknown, see --help" >&2
        exit 2
        ;;
    esac
done

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
{ cmake -S "$root" -B "$build" && cmake --build "$build" --target flashoverlap_cli; } >"$folder/log" 2>&1 ||
    { cat "$folder/log" >&2; exit 1; }
bash "$root/bench/torch_setup.sh" "$venv" >&2
if [ -z "$data" ]; then
    data=$folder/text.txt
    bash "$root/tools/text.sh" "$data"
fi
sizes=(--layers "$layers" --heads "$heads" --dim "$dim" --context "$context" --batch "$batch" --data "$data")

# ---- one turn: a line "dtype|who|how|{times}" in $folder/turns ---------------------------------------------
ours() # dtype
{
    local how="$ranks ranks x 1 thread, tensor and sequence parallel, wire $1"
    rm -f "$folder/steps"
    if ! "$build/flashoverlap" train "${sizes[@]}" --format bytes --ranks "$ranks" --threads 1 --dtype "$1" \
        --wire "$1" --overlap flash --steps $((warmup + steps)) --eval-every 0 --log "$folder/steps" \
        >"$folder/log" 2>&1; then
        tail -n 3 "$folder/log" >&2
        echo "bench/against_torch.sh: flashoverlap train failed, its last words are above" >&2
        exit 1
    fi
    echo "$1|flashoverlap|$how|$(tail -n "$steps" "$folder/steps" |
        sed 's/.*"step_ms": \([0-9.]*\).*/\1/' | paste -sd ' ')|" >>"$folder/turns"
}

failed=()
theirs() # dtype how options...
{
    local dtype=$1 how=$2 result
    shift 2
    case " ${failed[*]-} " in *" ${dtype}:${how// /_} "*) return ;; esac
    # large pages for what malloc hands out: 1 % faster here
    if ! result=$(GLIBC_TUNABLES=glibc.malloc.hugetlb=1 "$venv/bin/python" "$root/bench/torch_step.py" \
        "${sizes[@]}" --dtype "$dtype" --steps "$steps" --warmup "$warmup" --json "$@" 2>"$folder/log"); then
        echo "PyTorch, $dtype, $how: left out: $(grep -v '^ *$' "$folder/log" | tail -n 1)" >&2
        failed+=("${dtype}:${how// /_}")
        return
    fi
    local times=${result#*'"times_ms": ['} torch=${result#*'"torch": "'}
    times=${times%%]*}
    echo "$dtype|PyTorch|$how|${times//,/}|${torch%%\"*}" >>"$folder/turns"
}

turn() # dtype
{
    ours "$1"
    if [ "$1" = f32 ]; then
        theirs f32 "all threads" --mode single
        theirs f32 "all threads, torch.compile" --mode single --compile whole
        theirs f32 "$ranks ranks x 1 thread" --mode tp --ranks "$ranks"
        return
    fi
    local weights
    for weights in autocast master; do
        theirs bf16 "all threads, $weights" --mode single --weights $weights
        theirs bf16 "$ranks ranks x 1 thread, $weights" --mode tp --ranks "$ranks" --weights $weights
    done
    theirs bf16 "all threads, autocast, torch.compile" --mode single --compile whole
    theirs bf16 "all threads, pure (bf16 weights)" --mode single --weights pure
    theirs bf16 "$ranks ranks x 1 thread, pure (bf16 weights)" --mode tp --ranks "$ranks" --weights pure
}

: >"$folder/turns"
IFS=, read -ra dtype_list <<<"$dtypes"
for ((round = 0; round < rounds; round++)); do
    for dtype in "${dtype_list[@]}"; do
        turn "$dtype"
    done
done

# ---- tables ------------------------------------------------------------------------------------------
awk -F'|' -v json="$json" -v tokens=$((batch * context)) -v rounds="$rounds" -v steps="$steps" \
    -v size="$layers layers, $heads heads, width $dim, context $context, batch $batch" -v cores="$(nproc)" '
function sorted(list, n,    i, j, t) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] + 0 > list[j] + 0; j--) {
            t = list[j]; list[j] = list[j - 1]; list[j - 1] = t
        }
}
{
    key = $1 SUBSEP $2 SUBSEP $3
    if (!(key in times)) order[++keys] = key
    times[key] = times[key] " " $4
    if ($5 != "") torch = $5
}
END {
    if (json) print "["
    for (k = 1; k <= keys; k++) {
        key = order[k]
        split(key, part, SUBSEP)
        n = split(times[key], list, " ")
        sorted(list, n)
        median = n % 2 ? list[(n + 1) / 2] : (list[n / 2] + list[n / 2 + 1]) / 2
        if (part[2] == "flashoverlap") base[part[1]] = median
        ratio = median / base[part[1]]
        if (part[2] != "flashoverlap" && part[3] !~ /pure/ && (!(part[1] in best) || ratio < best[part[1]])) {
            best[part[1]] = ratio
            form[part[1]] = part[3]
        }
        if (json) {
            printf "%s  {\"dtype\": \"%s\", \"who\": \"%s\", \"how\": \"%s\", \"torch\": \"%s\", \"samples\": %d, " \
                "\"step_ms\": %.2f, \"min_ms\": %.2f, \"max_ms\": %.2f, \"tokens_per_s\": %.1f, \"ratio\": %.3f}", \
                (k > 1 ? ",\n" : ""), part[1], part[2], part[3], torch, n, median, list[1], list[n],
                tokens / median * 1000, ratio
            continue
        }
        if (part[1] != last) {
            printf "%s%s: %s; %d tokens a step, %d cores, PyTorch %s, %d x %d steps each\n\n",
                (last ? "\n" : ""), part[1], size, tokens, cores, torch, rounds, steps
            printf "%-14s%-58s%9s%18s%9s%7s\n", "who", "how", "ms", "least to most", "tok/s", "ratio"
            last = part[1]
        }
        printf "%-14s%-58s%9.1f%18s%9.0f%7.2f\n", part[2], part[3], median,
            sprintf("%.0f to %.0f", list[1], list[n]), tokens / median * 1000, ratio
    }
    if (json) print "\n]"
    else {
        print ""
        for (k = 1; k <= keys; k++) {
            split(order[k], part, SUBSEP)
            if (part[2] == "flashoverlap" && part[1] in best)
                printf "%s: the fastest form of PyTorch with float32 weights (%s) takes %.2f times as long\n",
                    part[1], form[part[1]], best[part[1]]
        }
    }
}' "$folder/turns"

# ---- where our step goes -------------------------------------------------------------------------------
[ -z "$json" ] && [ -n "$profile" ] || exit 0
if ! command -v perf >/dev/null 2>&1; then
    echo "no perf here: no profile"
    exit 0
fi
for dtype in "${dtype_list[@]}"; do
    if perf record -q -F 199 -o "$folder/perf" -- "$build/flashoverlap" train "${sizes[@]}" --format bytes \
        --ranks "$ranks" --threads 1 --dtype "$dtype" --wire "$dtype" --steps 3 --eval-every 0 --quiet \
        >"$folder/log" 2>&1; then
        printf '\n%s: processor time of a run of 3 steps by function (perf; [JIT] is oneDNN)\n\n' "$dtype"
        perf report -i "$folder/perf" --stdio --sort symbol 2>/dev/null | awk '
            /^ *[0-9]/ && $1 + 0 > 0 {
                share = $1 + 0
                $1 = $2 = ""
                gsub(/^ +|[ -]+$/, "")
                if ($0 ~ /^0x/) jit += share
                else if (shown < 14 && share >= 0.5) { line[++shown] = sprintf("%6.1f %%  %s", share, $0) }
                else rest += share
            }
            END {
                printf "%6.1f %%  [JIT]\n", jit
                for (i = 1; i <= shown; i++) print line[i]
                printf "%6.1f %%  everything else\n", rest
            }'
    else
        echo "perf can't record here: no profile"
    fi
done
