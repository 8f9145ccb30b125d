# shellcheck shell=bash
# What a job may leave behind on a machine. Sourced by tools/failures.sh and tools/soak.sh.

# tagged TAG: pids of living processes that were started with FO_TEST_TAG=TAG in their environment.
tagged()
{
    local file pid state
    { grep -alsZ "FO_TEST_TAG=$1" /proc/[0-9]*/environ 2>/dev/null || true; } | while IFS= read -r -d '' file; do
        pid=${file#/proc/}
        pid=${pid%/environ}
        state=$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$pid/status" 2>/dev/null || true)
        [ -z "$state" ] || [ "$state" = Z ] || echo "$pid"
    done
}

# segments: names of shared memory in the file system, and System V segments.
segments()
{
    find /dev/shm -mindepth 1 -maxdepth 1 2>/dev/null || true
    ipcs -m 2>/dev/null | awk '/^0x/ { print "System V segment " $2 }'
}

# new_segments FILE: those that FILE (written by segments before) does not list and no living process uses: other
# programs may run beside the tests.
new_segments()
{
    local name
    segments | sort | comm -13 <(sort "$1") - | while read -r name; do
        case $name in
        System*) [ "$(ipcs -m -i "${name##* }" 2>/dev/null | sed -n 's/.*nattch=\([0-9]*\).*/\1/p')" != 0 ] && continue ;;
        *) grep -qsF "$name" /proc/[0-9]*/maps && continue ;;
        esac
        echo "$name"
    done
}
