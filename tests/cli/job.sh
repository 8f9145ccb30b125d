# shellcheck shell=bash
# What the tests of jobs share: launchers, and starting the program under them. Source it behind lib.sh; ends the test
# with 77 (skipped) where there is no launcher whose library is built in.

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
export PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
# what these libraries keep until the process ends is not our leak
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"
unset OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_RANK PMI_RANK PMI_SIZE # the test is no rank itself

# ---- launchers ------------------------------------------------------------------------------------------
declare -A launchers=()
for word in mpirun.openmpi mpirun mpiexec.mpich mpiexec.hydra mpiexec; do
    path=$(command -v $word) || continue
    case $("$path" --version 2>/dev/null) in
    *"Open MPI"* | *OpenRTE*) [ -n "${launchers[openmpi]:-}" ] || launchers[openmpi]=$path ;;
    *HYDRA*) [ -n "${launchers[mpich]:-}" ] || launchers[mpich]=$path ;;
    esac
done
for family in "${!launchers[@]}"; do
    "$program" info | grep -q "libflashoverlap-mpi-$family" || unset "launchers[$family]"
done
if [ ${#launchers[@]} -eq 0 ]; then
    echo "skipped: no launcher (mpirun, mpiexec) of an MPI that is built in"
    exit 77
fi

# Each process runs this: its own standard output, other words for one rank (OTHER_RANK, OTHER_WORDS).
cat >"$work/rank" <<'SCRIPT'
#!/usr/bin/env bash
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
words=("$@")
if [ "${OTHER_RANK:-none}" = "$rank" ]; then
    read -ra more <<<"$OTHER_WORDS"
    words+=("${more[@]}")
fi
"$PROGRAM" "${words[@]}" >"$WORK/out.$rank"
code=$?
echo $code >"$WORK/code.$rank"
exit $code
SCRIPT
cat >"$work/killable" <<'SCRIPT'
#!/usr/bin/env bash
echo $$ >"$WORK/pid.${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}"
exec "$PROGRAM" "$@"
SCRIPT
chmod +x "$work/rank" "$work/killable"
export PROGRAM=$program WORK=$work

# job FAMILY N WORDS...: N processes; out: rank 0's output, err: what was said by any, code: the launcher's.
job()
{
    local family=$1 processes=$2
    shift 2
    command_line="$family, $processes processes: flashoverlap $*"
    rm -f "$work"/out.* "$work"/code.*
    code=0
    timeout -k 5 60 "${launchers[$family]}" -n "$processes" "$work/rank" "$@" >"$work/.launcher" \
        2>"$work/.err" </dev/null || code=$?
    out=$(cat "$work/out.0" 2>/dev/null || true)
    err=$(grep '^flashoverlap' "$work/.err" || true)
    [ $code -ne 124 ] || fail "$command_line: still running after 60 s"
    for ((rank = 1; rank < processes; rank++)); do
        [ ! -s "$work/out.$rank" ] || fail "$command_line: rank $rank wrote: $(head -3 "$work/out.$rank")"
    done
}

# refused CODE TEXT...: non-zero for everyone, one sentence with each text.
refused()
{
    local wanted=$1
    shift
    [ "$code" -ne 0 ] || fail "$command_line: exit code 0, expected a failure"
    for file in "$work"/code.*; do # of a process that the launcher killed there is none, or nothing in it
        [ ! -s "$file" ] || [ "$(<"$file")" -eq "$wanted" ] ||
            fail "$command_line: ${file##*.} exits with $(<"$file"), expected $wanted"
    done
    [ "$(grep -c '^flashoverlap' "$work/.err")" -eq 1 ] ||
        fail "$command_line: expected one sentence, found: $(<"$work/.err")"
    for text in "$@"; do
        [[ "$err" == *"$text"* ]] || fail "$command_line: expected '$text' in: $err"
    done
}

# endless FAMILY N WORDS...: training that goes on until it is stopped; pid.R is rank R's process.
endless()
{
    local family=$1 processes=$2
    shift 2
    command_line="$family, $processes processes: flashoverlap train $*"
    rm -f "$work"/pid.* "$work/endless"
    "${launchers[$family]}" -n "$processes" "$work/killable" train "${model[@]}" --steps 1000000 \
        --log "$work/endless" --quiet "$@" >"$work/.out" 2>"$work/.err" </dev/null &
    launcher=$!
    for _ in $(seq 200); do
        [ "$(wc -l 2>/dev/null <"$work/endless" || echo 0)" -lt 3 ] || return 0
        sleep 0.1
    done
    fail "$command_line: no steps within 20 s: $(<"$work/.err")"
}

# await_end: the job ends within 15 s.
await_end()
{
    for _ in $(seq 150); do
        kill -0 $launcher 2>/dev/null || break
        sleep 0.1
    done
    ! kill -KILL $launcher 2>/dev/null || fail "$command_line: still running after 15 s"
    code=0
    wait $launcher 2>/dev/null || code=$?
}

# ended TEXT...: it failed, says each text in one sentence and leaves no process.
ended()
{
    err=$(grep -a '^flashoverlap' "$work/.err" || true)
    expect_same "sentences, $command_line" "$(wc -l <<<"$err")" 1
    for text in "$@"; do
        [[ "$err" == *"$text"* ]] || fail "$command_line: expected '$text' in: $(<"$work/.err")"
    done
    nothing_left
}

nothing_left()
{
    [ "$code" -ne 0 ] || fail "$command_line: exit code 0, expected a failure"
    for file in "$work"/pid.*; do
        for _ in $(seq 30); do
            kill -0 "$(<"$file")" 2>/dev/null || break
            sleep 0.1
        done
        ! kill -0 "$(<"$file")" 2>/dev/null || fail "$command_line: ${file##*.} is still there"
    done
}

# death FAMILY N RANK TEXT... -- WORDS...: training in which that rank is killed; the texts are said, by the others or,
# where Hydra of MPICH kills them before they can, for them.
death()
{
    local family=$1 processes=$2 victim=$3 texts=()
    shift 3
    while [ "$1" != -- ]; do
        texts+=("$1")
        shift
    done
    shift
    endless "$family" "$processes" "$@"
    kill -KILL "$(<"$work/pid.$victim")"
    await_end
    ended "${texts[@]}"
}

losses() { number loss <"$1" | xargs; }
