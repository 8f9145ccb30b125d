#!/usr/bin/env bash
# Breaks short training runs at random moments in every way that a cluster knows, and checks what is promised
# of each: it ends in time and not with 0, says once who was at fault and where to go on from, and leaves no process,
# no shared segment and no torn checkpoint.
#   tools/failures.sh [--program FILE] [--repeat K] [--kinds LIST] [--transports LIST] [--ranks LIST]
#                     [--seed S] [--logs DIR] [--lab]
#   --kinds       kill,stop,exit,link,disk,context: kill -9, SIGSTOP, exit(3), a cable pulled, no space left where
#                 checkpoints go, another --context on one rank
#   --transports  shm,openmpi,mpich
# With kind link the ranks on both sides must end in time; the cable is plugged in again when they have, for a
# launcher that waits for its other half longer than that is not ours to mend.
#   --lab         MPI jobs in a network of their own (tools/netlab.sh), a host a rank, not on this machine alone;
#                 kind link is always there
# Prints a table and examples of messages; the exit code is 1 when a promise was broken, and the logs of that run
# are in DIR. A kind or a transport that can't run here is skipped with a word.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
. "$here/../tests/fault/leftovers.sh"
. "$here/../tests/fault/checkpoints.sh"

program=$here/../build/flashoverlap repeat=3 kinds=kill,stop,exit,link,disk,context transports=shm,openmpi,mpich
ranks_list=2,3,4 seed=$RANDOM logs=failures.logs lab=''

# ---- numbers to tune ---------------------------------------------------------------------------------
deadline=5         # of a wait, given to the runs
death_bound=10     # s, for a process that is gone
silence_bound=10   # s, for one that is silent: the deadline and what it takes to say so and to leave
start_bound=60     # s, until the first step
most_delay_ms=1500 # after the first step
model=(--layers 2 --heads 4 --dim 64 --context 64 --batch 8)
# ------------------------------------------------------------------------------------------------------

stop() # code sentence
{
    echo "tools/failures.sh: $2" >&2
    exit "$1"
}

while [ $# -gt 0 ]; do
    case $1 in
    --program | --repeat | --kinds | --transports | --ranks | --seed | --logs)
        [ $# -gt 1 ] || stop 2 "$1 needs a value"
        ;;&
    --program) program=$2 && shift 2 ;;
    --repeat) repeat=$2 && shift 2 ;;
    --kinds) kinds=$2 && shift 2 ;;
    --transports) transports=$2 && shift 2 ;;
    --ranks) ranks_list=$2 && shift 2 ;;
    --seed) seed=$2 && shift 2 ;;
    --logs) logs=$2 && shift 2 ;;
    --lab) lab=1 && shift ;;
    *) stop 2 "'$1' is unknown; the first lines of this script say what there is" ;;
    esac
done
[ -x "$program" ] || stop 2 "there is no program $program, expected --program FILE"
program=$(realpath "$program")
IFS=, read -ra rank_counts <<<"$ranks_list"

work=$(mktemp -d)
parent=''
end_all()
{
    local left
    left=$(tagged "$$-")
    # shellcheck disable=SC2086 # one word a process
    [ -z "$left" ] || kill -KILL $left 2>/dev/null || true
    umount "$work/run/out" "$work/probe" 2>/dev/null || true
    rm -rf "$work"
}
trap end_all EXIT
trap 'exit 130' INT TERM

cc -shared -fPIC -O1 -o "$work/exit_on_signal.so" "$here/../tests/fault/exit_on_signal.c"
awk 'BEGIN { for (i = 1; i <= 4000; i++) printf "the %d little boats of %d fishermen went %s the sea.\n", i,
    i * 7 % 100, i % 3 ? "out to" : "home from" }' >"$work/text"
train=("$program" train --data "$work/text" "${model[@]}" --eval-every 0 --threads 1 --quiet --deadline "$deadline")

# random LOW HIGH: from a generator of our own, so that a seed gives the same moments everywhere
state=$seed
random()
{
    state=$(((state * 1103515245 + 12345) % 2147483648))
    drawn=$(($1 + (state / 65536) % ($2 - $1 + 1)))
}

ms() { echo $(($(date +%s%N) / 1000000)); }

# ---- one run ---------------------------------------------------------------------------------------------
# start KIND TRANSPORT RANKS: sets parent, lab_name. The victim of kind context is known before.
start()
{
    local kind=$1 transport=$2 ranks=$3 words=() command
    command=("${train[@]}" --steps 1000000 --out "$run/out" --save-every 5 --log "$run/log")
    [ "$kind" != context ] || command=("$here/../tests/fault/one_differs.sh" "$victim" --context 48 "${command[@]}")
    [ "$kind" != exit ] || words+=("LD_PRELOAD=$work/exit_on_signal.so")
    where=machine
    case $transport in
    shm) command+=(--ranks "$ranks") ;;
    *)
        if [ -n "$lab" ] || [ "$kind" = link ]; then
            where=lab
            command=("$here/netlab.sh" --mpi "$transport" --hosts "$ranks" --rate off -- "${command[@]}")
        elif [ "$transport" = openmpi ]; then
            command=(mpirun.openmpi --allow-run-as-root --oversubscribe -np "$ranks" "${command[@]}")
        else
            command=(mpiexec.mpich -n "$ranks" "${command[@]}")
        fi
        ;;
    esac
    printf '%q ' "${command[@]}" >"$run/command"
    # a launcher loads the library too, and passes its environment on to the ranks
    FO_TEST_TAG=$tag TMPDIR=$run/tmp setsid env "${words[@]}" "${command[@]}" >"$run/stdout" 2>"$run/stderr" \
        </dev/null &
    parent=$!
}

# The pid of a rank: a child of the program itself, or what has this number from its launcher.
pid_of() # transport rank
{
    local pid
    if [ "$1" = shm ]; then
        pgrep -P "$parent" | sed -n "$(($2 + 1))p"
        return
    fi
    for pid in $(tagged "$tag"); do
        [ "$(readlink "/proc/$pid/exe")" = "$program" ] || continue
        if tr '\0' '\n' <"/proc/$pid/environ" | grep -qxE "(OMPI_COMM_WORLD_RANK|PMI_RANK)=$2"; then
            echo "$pid"
            return
        fi
    done
}

alive() { kill -0 "$parent" 2>/dev/null; }

wait_for_step()
{
    local begin
    begin=$(ms)
    while alive && [ ! -s "$run/log" ]; do
        [ $(($(ms) - begin)) -lt $((start_bound * 1000)) ] || break
        sleep 0.05
    done
    [ -s "$run/log" ] || broken "no step within $start_bound s"
}

# Does what the kind says to the victim; what happened is over when this returns.
strike() # kind transport
{
    local pid=''
    case $1 in
    disk | context) return ;;
    link)
        "$here/netlab.sh" --lab "fonet-$parent" link "$victim" down || broken "the link could not be cut"
        return
        ;;
    esac
    pid=$(pid_of "$2" "$victim")
    if [ -z "$pid" ]; then
        broken "no process of rank $victim was found"
        return
    fi
    case $1 in
    kill) kill -KILL "$pid" ;;
    stop) kill -STOP "$pid" ;;
    exit) kill -s RTMIN+5 "$pid" ;;
    esac
}

# All ranks gone? Then the launcher may hear of it.
mend_link()
{
    local pid
    for pid in $(tagged "$tag"); do
        [ "$(readlink "/proc/$pid/exe")" != "$program" ] || return 0
    done
    took_ms=$(($(ms) - begin))
    "$here/netlab.sh" --lab "fonet-$parent" link "$victim" up 2>/dev/null || true
    launcher_end
}

# The launcher has a while to hear of it, and does not count.
launcher_end()
{
    local _
    for _ in $(seq 200); do
        alive || return 0
        sleep 0.05
    done
    broken "its ranks are gone and the link is back, but the launcher still runs"
}

# wait_for_end SECONDS KIND: sets code and took_ms.
wait_for_end()
{
    local begin
    begin=$(ms)
    took_ms=0
    while [ "$2" = link ] && alive && [ $took_ms -eq 0 ] && [ $(($(ms) - begin)) -lt $(($1 * 1000)) ]; do
        sleep 0.2
        mend_link
    done
    while alive && [ $(($(ms) - begin)) -lt $(($1 * 1000)) ]; do
        sleep 0.02
    done
    [ $took_ms -gt 0 ] || took_ms=$(($(ms) - begin))
    if alive; then
        broken "still running after $1 s"
        ps -eo pid,ppid,stat,wchan:20,args >"$run/processes"
        # shellcheck disable=SC2046 # one word a process
        kill -KILL $(tagged "$tag") 2>/dev/null || true
        "$here/netlab.sh" clean >/dev/null 2>&1 || true
    fi
    code=0
    wait "$parent" 2>/dev/null || code=$?
}

# ---- the promises ------------------------------------------------------------------------------------------
broken() # sentence
{
    echo "$1" >>"$run/broken"
}

check_leftovers()
{
    local left
    for _ in $(seq 10); do # what is being killed may need a moment
        left=$(tagged "$tag")
        [ -n "$left" ] || break
        sleep 0.2
    done
    if [ -n "$left" ]; then
        # shellcheck disable=SC2086 # one word a process
        broken "processes are left: $(ps -o pid=,stat=,args= -p ${left//$'\n'/,} | cut -c1-100 | paste -sd';' -)"
        # shellcheck disable=SC2086
        kill -KILL $left 2>/dev/null || true
    fi
    left=$(new_segments "$run/segments" | paste -sd' ' -)
    [ -z "$left" ] || broken "shared segments are left: $left"
    left=$(find "$run/tmp" -mindepth 1 -type f 2>/dev/null | paste -sd' ' -)
    [ -z "$left" ] || broken "files of the launcher are left: $left"
}

check_message() # kind transport
{
    local said lines most=1 text
    said=$(grep -a '^flashoverlap' "$run/stderr" || true)
    lines=$(grep -c . <<<"$said" || true)
    echo "$said" | head -n 1 >"$run/message"
    # on either side of a cut cable somebody speaks, and neither hears the other
    [ "$1" != link ] || most=2
    if [ "$lines" -lt 1 ] || [ "$lines" -gt $most ]; then
        broken "said $lines sentences, expected one"
    fi
    case $1 in
    disk) text='[Nn]o space' ;;
    context) text='context.*rank|rank.*context' ;;
    *) text="rank $victim([^0-9]|\$)" ;;
    esac
    grep -qE "$text" <<<"$said" || broken "does not name the culprit ($text)"
    if [ "$where" = lab ] && [[ "$1" =~ ^(kill|stop|exit|link)$ ]]; then
        grep -qE "fonet-[0-9]+-$victim" <<<"$said" || broken "does not name the host of rank $victim"
    fi
    # what was the newest when it began to end
    if [ -f "$run/out/latest" ] && [ "$1" != context ]; then
        grep -qF -- "$run/out" <<<"$said" || broken "does not say which checkpoint to go on from"
    fi
}

# Every checkpoint is whole, and the newest can be gone on from.
check_checkpoints() # kind
{
    local wrong step
    wrong=$(torn "$run/out" | paste -sd';' -)
    [ -z "$wrong" ] || broken "torn checkpoint: $wrong"
    [ -f "$run/out/latest" ] || return 0
    [ "$1" != disk ] || mount -o remount,size=64m "$run/out"
    step=$(sed 's/[^0-9]//g' "$run/out/latest")
    "${train[@]}" --ranks 2 --steps $((10#$step + 2)) --resume "$run/out" --out "$run/out" --save-every 1 \
        >"$run/resumed" 2>&1 || broken "does not go on: $(tail -n 1 "$run/resumed")"
    wrong=$(torn "$run/out" | paste -sd';' -)
    [ -z "$wrong" ] || broken "torn after going on: $wrong"
    wrong=$(find "$run/out" -name '*tmp*' | paste -sd' ' -)
    [ -z "$wrong" ] || broken "left after going on: $wrong"
}

one_run() # kind transport ranks
{
    local bound=$death_bound
    number=$((number + 1))
    tag=$$-$(printf %06d $number)
    run=$work/run
    rm -rf "$run"
    mkdir -p "$run/out" "$run/tmp"
    : >"$run/broken"
    segments >"$run/segments"
    random 0 $(($3 - 1)) && victim=$drawn
    case $1 in
    disk)
        # two are kept while the third is written: it fits none, one or two
        random $((checkpoint_kb / 2)) $((checkpoint_kb * 11 / 4))
        mount -t tmpfs -o size="$((drawn + 16))k" fo-failures "$run/out"
        bound=$start_bound
        ;;
    context) bound=$start_bound ;;
    stop | link) bound=$silence_bound ;;
    esac
    start "$1" "$2" "$3"
    if [ "$1" != disk ] && [ "$1" != context ]; then
        wait_for_step
        random 0 $most_delay_ms
        sleep "$((drawn / 1000)).$(printf %03d $((drawn % 1000)))"
        strike "$1" "$2"
    fi
    wait_for_end "$bound" "$1"
    [ "$code" -ne 0 ] || broken "ended with 0"
    check_leftovers
    check_message "$1"
    check_checkpoints "$1"
    [ "$1" != disk ] || umount "$run/out"
}

# ---- all of them -------------------------------------------------------------------------------------------
# Why a kind can't run under a transport here; nothing when it can.
why_not() # kind transport
{
    case $2 in
    openmpi) command -v mpirun.openmpi >/dev/null || { echo "no Open MPI" && return; } ;;
    mpich) command -v mpiexec.mpich >/dev/null || { echo "no MPICH" && return; } ;;
    esac
    case $1 in
    link | context) [ "$2" != shm ] || { echo "one command, one machine" && return; } ;;
    disk) mountpoint -q "$work/probe" || { echo "tmpfs can't be mounted" && return; } ;;
    esac
    if [ "$1" = link ] || { [ -n "$lab" ] && [ "$2" != shm ]; }; then
        "$here/netlab.sh" ps >/dev/null 2>&1 || echo "no network namespaces"
    fi
}

keep_logs() # kind transport ranks
{
    local to=$logs/$1-$2-$3-$number
    mkdir -p "$to"
    cp "$run"/{command,stdout,stderr,broken,message,log,processes,resumed} "$to/" 2>/dev/null || true
    echo "    $1 $2 N=$3 run $number: $(paste -sd'|' "$run/broken" | sed 's/|/; /g'); see $to"
}

series() # kind transport
{
    local i ranks failed=0 longest=0 why
    why=$(why_not "$1" "$2")
    if [ -n "$why" ]; then
        printf '%-9s%-10s skipped: %s\n' "$1" "$2" "$why" | tee -a "$work/table"
        return
    fi
    for ((i = 0; i < repeat; i++)); do
        ranks=${rank_counts[i % ${#rank_counts[@]}]}
        one_run "$1" "$2" "$ranks"
        [ "$took_ms" -le "$longest" ] || longest=$took_ms
        if [ -s "$run/broken" ]; then
            failed=$((failed + 1))
            keep_logs "$1" "$2" "$ranks"
        fi
    done
    printf '%-9s%-10s%6d runs%6d failures%8d.%02d s at most\n' "$1" "$2" "$repeat" "$failed" \
        $((longest / 1000)) $((longest % 1000 / 10)) | tee -a "$work/table"
    sed "s#$run#DIR#g; s/^/    /" "$run/message" >>"$work/table"
    failures=$((failures + failed))
}

# One checkpoint, to know how much space it needs.
mkdir -p "$work/probe"
"${train[@]}" --ranks 2 --steps 1 --out "$work/out" >"$work/first" 2>&1 ||
    stop 1 "training does not work at all: $(tail -n 1 "$work/first")"
checkpoint_kb=$(du -sk "$work/out" | cut -f1)
rm -rf "$work/out"
mount -t tmpfs -o size=64k fo-failures "$work/probe" 2>/dev/null || true

echo "seed $seed; a checkpoint takes $checkpoint_kb KB"
number=0 failures=0
for kind in ${kinds//,/ }; do
    for transport in ${transports//,/ }; do
        series "$kind" "$transport"
    done
done
umount "$work/probe" 2>/dev/null || true
printf '\nWhat was said last, of each:\n'
cat "$work/table"
[ "$failures" -eq 0 ] || stop 1 "$failures runs broke a promise (seed $seed); their logs are in $logs"
