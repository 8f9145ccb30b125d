#!/usr/bin/env bash
# Measures what RESULTS.md shows and writes it: machine, then a section each with what it shows, the exact
# command and its output. Half an hour to an hour on a machine that does nothing else.
#   tools/results.sh [--only 1,4|none] [--build DIR] [--out FILE] [--list]
# --only keeps the other sections of an existing FILE as they are; one that FILE does not have is written without
# output. A command that fails leaves its message in its section; the rest still runs, and the exit code is 1 at
# the end.
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
build=build only='' out=RESULTS.md list=''
while [ $# -gt 0 ]; do
    case $1 in
    --only | --build | --out)
        [ $# -gt 1 ] || { echo "tools/results.sh: $1 needs a value" >&2; exit 2; }
        declare "${1#--}=$2"
        shift 2
        ;;
    --list) list=1 && shift ;;
    *)
        echo "tools/results.sh: '$1' is unknown, expected --only 1,4, --build DIR, --out FILE or --list" >&2
        exit 2
        ;;
    esac
done
cd "$root"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0

# ---- the list: sections, and the commands of each ----------------------------------------------------------
titles=() texts=() commands=()
section() # title text
{
    titles+=("$1")
    texts+=("$2")
    commands+=('')
}
command_line() { commands[-1]+="$*"$'\n'; }

bf16="--dtype bf16 --wire bf16"
points="16x512,8x1024,4x2048,1x8192"

section "MLP in the paper's proportions, four ranks, emulated" \
    "Computation and transfer take the times of the paper's MLP (78.5 and 43.8 ms), as an emulated device and link; \
programs, executor and messages are real, results are not computed. The second command keeps the tokens and varies \
batch and context."
command_line flashoverlap bench mlp --ranks 4 --batch 32 --context 4096 --dim 4096 --ffn 16384 "$bf16" \
    --emulate 78.5ms --transfer 43.8ms --overlap none,slice:8,ring,flash,direct --repeat 11
command_line flashoverlap bench mlp --ranks 4 --dim 4096 --ffn 16384 "$bf16" \
    --emulate 78.5ms --transfer 43.8ms --overlap none,slice:8,ring,flash,direct --repeat 11 \
    --sweep 128x1024,64x2048,32x4096,16x8192,8x16384

section "MLP, two ranks, computed" \
    "The same block computed on two cores, over an emulated link on which the transfer takes 0.56 of the computation, \
as in the paper; results are compared bit by bit."
command_line flashoverlap bench mlp --ranks 2 --rows 4096 --dim 1024 --ffn 4096 "$bf16" --link auto:0.56,5us \
    --overlap none,slice:8,ring,flash

section "Attention by queries" \
    "Attention with its output projection at equal tokens: overlapped query slice by query slice (flash), the \
projection alone (flash+row), and in chunks; computed on two ranks and emulated on four, forward and backward."
for direction in '' ' --backward'; do
    command_line flashoverlap bench attention --ranks 2 --dim 1024 --heads 16 "$bf16" --link auto:0.56,5us \
        --sweep "$points" --overlap none,slice:4,flash+row,flash --repeat 7"$direction"
    command_line flashoverlap bench attention --ranks 4 --dim 4096 --heads 32 "$bf16" --emulate 78.5ms \
        --transfer 43.8ms --sweep "$points" --overlap none,slice:4,flash+row,flash"$direction"
done

section "Fused and joint against separate" \
    "The MLP as one program against its two operators one after the other, and the joint backward pass of a \
column-parallel layer against dgrad and wgrad apart (+apart), with a transfer of 0.5, 1 and 2 times the computation."
for ratio in 0.5 1 2; do
    command_line flashoverlap bench mlp --ranks 2 --rows 4096 --dim 1024 --ffn 4096 "$bf16" \
        --link "auto:$ratio,5us" --overlap none,flash+apart,flash
done
for ratio in 0.5 1 2; do
    command_line flashoverlap bench column --backward --ranks 2 --rows 4096 --dim 1024 --ffn 4096 "$bf16" \
        --link "auto:$ratio,5us" --overlap none,flash+apart,flash
done

section "A training step of GPT-2 small" \
    "Forward, backward and optimizer of 12 layers on two ranks over an emulated link, 2048 tokens a step."
command_line flashoverlap bench step --ranks 2 --layers 12 --heads 12 --dim 768 --context 512 --batch 4 "$bf16" \
    --link auto:0.5,5us --overlap none,slice:4,flash --repeat 5

section "More ranks than cores" \
    "Sixteen ranks under every strategy: programs verified, bits equal, and what fifteen ranks cost while they wait \
for one (bench/waiting.c)."
command_line bash bench/waiting.sh build

section "What the executor costs" \
    "Instructions per task, counted by callgrind over programs whose computations do nothing (bench/overhead.c); \
constant in N and m means that the whole is linear in the number of tasks."
command_line bash bench/overhead.sh build

section "Against PyTorch on the same cores" \
    "The same training step in turns with every form of PyTorch that runs here (bench/torch_step.py); PyTorch with \
float32 weights is the like of ours, pure bf16 weights are shown beside it."
command_line bash bench/against_torch.sh --rounds 2 --steps 2 --build build --venv build/torch

section "Operators over Ethernet of 1 and 2 Gbit/s" \
    "Two hosts on this machine (tools/netlab.sh: network namespaces, veth, tbf; needs root), a core each, under both MPI \
libraries, against their own collectives (library) and their nonblocking ones behind slices (library:k). transfer is \
what the bytes need at the rate, in parts of the computation alone. The kernel's TCP runs on the cores that compute: \
what it takes cannot be hidden."
command_line bash bench/netlab.sh --program build/flashoverlap --ffn 4096,8192 --repeat 9

section "Data parallelism over Ethernet, two replicas" \
    "12 layers of GPT-2 small on two hosts: gradients are reduce-scattered behind the backward pass, parameters \
gathered behind the next forward pass, optimizer state is halved. Hidden between replicas: docs/metrics.md."
for rate in 2gbit 1gbit; do
    command_line bash tools/netlab.sh --rate $rate -- build/flashoverlap train --data run/text.txt --layers 12 \
        --heads 12 --dim 768 --context 512 --batch 8 --dtype bf16 --dp 2 --threads 1 --steps 4 --warmup 1 \
        --eval-every 0 --compare none,flash
done

section "The transport against plain MPI" \
    "Ping-pong and windows of 64 messages, as the OSU benchmarks do, in turns in one process."
command_line bash bench/pingpong.sh build

section "Failures" \
    "Short training runs broken at random moments, 50 times in each way (an hour)."
command_line bash tools/failures.sh --program build/flashoverlap --repeat 50

section "Predicted against measured" \
    "Every operator in all its forms under every strategy, predicted and measured side by side: two ranks that compute over \
an emulated link, four and eight ranks of an emulated device; transfers of a quarter to twice the computation. Chosen is \
what is predicted to be fastest; regret: how much faster the fastest was."
command_line bash bench/predict.sh --build build --repeat 9

section "Predictions for machines that are not here" \
    "Published steps of Megatron-LM, the paper's MLP, a layer that is better not overlapped, and what predicting costs: a \
step of 4,096 ranks, a plan for 1,024."
command_line bash bench/megatron.sh build
command_line flashoverlap simulate mlp --machine flashoverlap-paper --ranks 4 --batch 32 --context 4096 --dim 4096 \
    --ffn 16384 --overlap none,slice:8,flash
command_line flashoverlap simulate mlp --machine h100-sxm --ranks 8 --batch 1 --context 4096 --dim 4096 --ffn 16384
command_line bash bench/planning.sh build

# ---- running them ------------------------------------------------------------------------------------------
chosen() # number
{
    [ -z "$only" ] || [[ ",$only," == *",$1,"* ]]
}

# what people type, with the build folder of this run behind it
run_command() # line
{
    local line=$1 words
    line=${line/#flashoverlap /$build/flashoverlap }
    line=${line/ build\/torch/ $build/torch}
    line=${line/% build/ $build}
    line=${line/--build build /--build $build }
    read -ra words <<<"$line"
    "${words[@]}"
}

write_title() # number
{
    local i=$(($1 - 1))
    printf '## %d. %s\n\n%s\n' "$1" "${titles[i]}" "${texts[i]}"
}

write_section() # number: to standard output
{
    local i=$(($1 - 1)) line code
    write_title "$1"
    while read -r line; do
        [ -n "$line" ] || continue
        echo "section $1: $line" >&2
        code=0
        run_command "$line" >"$work/out" 2>"$work/err" </dev/null || code=$?
        printf '\n    %s\n\n```\n' "$line"
        # what a machine prints is no place for a fence or for blanks at the end
        sed -e 's/```//g' -e 's/[[:space:]]*$//' "$work/out"
        if [ "$code" -ne 0 ]; then
            tail -n 5 "$work/err"
            echo "FAILED: exit code $code"
            echo "section $1: exit code $code" >&2
            echo failed >>"$work/failures"
        fi
        printf '```\n'
    done <<<"${commands[i]}"
    printf '\n'
}

kept_section() # number: what FILE has, or the commands alone
{
    if [ -f "$out" ] && grep -q "^## $1\. " "$out"; then
        awk -v head="## $1. " '/^## [0-9]+\. /{on = index($0, head) == 1} on' "$out"
        echo
        return
    fi
    write_title "$1"
    printf '\n'
    printf '%s' "${commands[$(($1 - 1))]}" | sed 's/^/    /'
    printf '\nNot measured yet.\n\n'
}

version_of() # what command
{
    local text
    text=$("${@:2}" 2>/dev/null | head -n 1) || return 0
    [ -z "$text" ] || echo "$1: $text"
}

write_head()
{
    cat <<EOF
# Results

Written by \`tools/results.sh\` from the commands below, in this order, on an otherwise idle machine;
[docs/metrics.md](docs/metrics.md) defines every figure. *Emulated* figures come from real programs and
messages over an emulated link or device.

\`\`\`
$("$build/flashoverlap" info | sed 's/[[:space:]]*$//')

date: $(date -u +%Y-%m-%d)
$(version_of "cores" nproc)
$(version_of "compiler" cc --version)
$(version_of "valgrind" valgrind --version)
\`\`\`

EOF
}

if [ -n "$list" ]; then
    for i in "${!titles[@]}"; do
        printf '%d. %s\n' $((i + 1)) "${titles[i]}"
        printf '%s' "${commands[i]}" | sed 's/^/    /'
    done
    exit 0
fi
for number in ${only//,/ }; do
    [ "$only" != none ] || break
    if ! [[ "$number" =~ ^[0-9]+$ ]] || [ "$number" -lt 1 ] || [ "$number" -gt "${#titles[@]}" ]; then
        echo "tools/results.sh: --only names '$number', expected numbers from 1 to ${#titles[@]}" >&2
        exit 2
    fi
done
{ cmake -S . -B "$build" && cmake --build "$build" --target flashoverlap_cli; } >"$work/out" 2>&1 ||
    { cat "$work/out" >&2; exit 1; }

: >"$work/failures"
write_head >"$work/results"
for i in "${!titles[@]}"; do
    number=$((i + 1))
    if chosen "$number"; then
        write_section "$number" >>"$work/results"
    else
        kept_section "$number" >>"$work/results"
    fi
done
# one blank line between sections, none at the end of the file
cat -s "$work/results" | sed '${/^$/d}' >"$work/done"
cp "$work/done" "$out"
failures=$(wc -l <"$work/failures")
if [ "$failures" -gt 0 ]; then
    echo "tools/results.sh: $failures commands failed, $out has their last words" >&2
    exit 1
fi
