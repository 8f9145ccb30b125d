#!/usr/bin/env bash
# A cluster on one machine for tests: network namespaces as hosts, each with a host name and an interface of its
# own, on a bridge whose ports pass a stated rate. mpirun starts ranks on it as on separate machines.
#
#   tools/netlab.sh [OPTIONS] -- COMMAND ARGS...    COMMAND on all hosts under the launcher; its exit code
#   tools/netlab.sh [OPTIONS] host -- COMMAND ...   COMMAND on host 0 alone, no launcher
#   tools/netlab.sh [OPTIONS] shell                 a shell on host 0; "$FO_NETLAB_RUN" COMMAND starts ranks
#   tools/netlab.sh [--lab NAME] link HOST down|up  unplugs a host (0, 1, ...), or plugs it in again
#   tools/netlab.sh ps                              labs, and what runs in them
#   tools/netlab.sh clean                           removes what labs that were killed have left
#
#   --hosts N            2        hosts
#   --ranks-per-host N   1        ranks on each
#   --rate RATE          1gbit    of every port in each direction; off: as fast as the machine
#   --mpi NAME           openmpi  or mpich
#   --no-bind                     do not bind each rank to a core of its own
#   --plain                       leave the library's settings alone, see fast() below
#   --launcher "WORDS"            more words for the launcher
#   --lab NAME                    which lab, where several run
#
# Needs root, ip, tc and unshare; where it can't run it says so and ends with 77. A lab is removed however its
# command ends, with all its processes; several labs can run side by side. The bridge lives in a namespace too:
# nothing is added to the machine's own network, so no address can collide.
set -euo pipefail

# ---- numbers to tune ---------------------------------------------------------------------------------
# Measured with one TCP stream in each direction:
#   mtu         payload of 1 and 2 Gbit/s: 957 and 1912 Mbit/s with 1500, 993 and 1986 with 9000; the same
#               processor time, since whole segments pass veth and tbf uncut
#   segment     what TCP hands down at a time. A port here is no hardware: its timer and each segment's way through it
#               cost the cores that compute. Milliseconds of a computing core, a megabyte sent and received, at 2
#               Gbit/s, medians of several runs: 0.8 to 1.2 with 64 KiB (the default, and what there is without python3
#               or before Linux 6.3), 0.6 to 0.8 with 128 to 150 KB, 0.4 to 0.75 with 184 or 250 KB; 0.3 to 0.5 with
#               250 KB and no rate
#   burst       a little more than a segment, which tbf would cut otherwise; far more only lets more bytes pass unshaped
#               after a pause (256 kb: 2 ms at 1 Gbit/s). Bulk transfers, one way and both ways, with 184 KB in 192 kb:
#               992 to 994 and 1984 to 1988 Mbit/s. With 64 KiB: 70 kb 1840-1900 of 1912 and twice the processor time
#   queue       what may wait in a port: 1 ms loses packets (951-957), 5 ms none; more only delays small messages
#   congestion  reno: every kernel has it; bbr paces with timers: 1889 of 1912 and twice the processor time
mtu=9000 segment=184000 burst=192kb queue=5ms congestion=reno
# ------------------------------------------------------------------------------------------------------

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
prefix=fonet
hosts=2 per_host=1 rate=1gbit mpi=openmpi bind=1 plain='' more=() lab=${FO_NETLAB:-} child='' signalled=''

stop() # code sentence
{
    echo "tools/netlab.sh: $2" >&2
    exit "$1"
}

# ---- making and removing -----------------------------------------------------------------------------------
can_run()
{
    local tool
    [ "$(id -u)" -eq 0 ] || stop 77 "network namespaces need root, found user $(id -un); skipped"
    for tool in ip tc unshare taskset; do
        command -v "$tool" >/dev/null || stop 77 "'$tool' is missing, expected iproute2 and util-linux; skipped"
    done
    unshare --net --uts --mount sh -c "ip link add left type veth peer name right && ip link add middle type bridge &&
        tc qdisc add dev left root tbf rate 1gbit burst $burst latency $queue" 2>/dev/null ||
        stop 77 "this machine does not allow namespaces with veth, bridge and tbf; skipped"
}

names()
{
    local i
    echo "127.0.0.1 localhost"
    for ((i = 0; i < hosts; i++)); do
        echo "10.77.0.$((i + 1)) $lab-$i"
    done
}

shape() # namespace device
{
    [ "$rate" = off ] || tc -n "$1" qdisc replace dev "$2" root tbf rate "$rate" burst $burst latency $queue
}

# TCP's segments through these devices.
lengthen_segments() # namespace device...
{
    command -v python3 >/dev/null || return 0
    ip netns exec "$1" "$here/netlab/segments.py" $segment "${@:2}"
}

# A switch with a bridge, and a namespace a host; host i is 10.77.0.(i + 1) and its interface is eth0.
make_lab()
{
    local i host switch=$lab-switch ports=()
    ip netns add "$switch"
    ip -n "$switch" link add bridge type bridge
    ip -n "$switch" link set bridge mtu $mtu up
    for ((i = 0; i < hosts; i++)); do
        host=$lab-$i
        mkdir -p "/etc/netns/$host" # `ip netns exec` lays its files over /etc
        names >"/etc/netns/$host/hosts"
        ip netns add "$host"
        ip -n "$host" link set lo up
        ip -n "$switch" link add "port$i" mtu $mtu type veth peer name eth0 mtu $mtu netns "$host"
        ip -n "$switch" link set "port$i" master bridge up
        ports+=("port$i")
        lengthen_segments "$host" eth0
        ip -n "$host" address add "10.77.0.$((i + 1))/24" dev eth0
        ip -n "$host" link set eth0 up
        ip netns exec "$host" sysctl -qw net.ipv4.tcp_congestion_control=$congestion
        shape "$host" eth0
        shape "$switch" "port$i"
    done
    lengthen_segments "$switch" bridge "${ports[@]}"
}

namespaces() # lab
{
    ip netns list | awk -v lab="$1-" 'index($1, lab) == 1 { print $1 }'
}

processes() # lab: pids
{
    local name
    for name in $(namespaces "$1"); do
        ip netns pids "$name" 2>/dev/null || true
    done
}

# Kills what still runs in a lab and removes it, with what killed launchers leave in /tmp.
remove_lab() # lab
{
    local name left
    for _ in $(seq 50); do
        left=$(processes "$1")
        [ -n "$left" ] || break
        # shellcheck disable=SC2086 # one word a process
        kill -KILL $left 2>/dev/null || true
        sleep 0.1
    done
    for name in $(namespaces "$1"); do
        ip netns delete "$name" || true
    done
    rm -rf "/etc/netns/$1"-[0-9]* "${TMPDIR:-/tmp}/ompi.$1"-*
    rmdir /etc/netns 2>/dev/null || true
}

labs()
{
    { ip netns list | awk '{ print $1 }'; ls /etc/netns 2>/dev/null || true; } |
        sed -nE "s/^($prefix-[0-9]+)-.*/\1/p" | sort -u
}

lives() # lab: its name holds the process that made it
{
    tr '\0' ' ' 2>/dev/null <"/proc/${1#"$prefix"-}/cmdline" | grep -q 'netlab\.sh'
}

# ---- launching ---------------------------------------------------------------------------------------------
# Settings with which large messages move in both directions at once when a rank looks at them about once a
# millisecond; whoever sets them otherwise is obeyed.
#   Open MPI    by default it "puts" large messages: the receiver's go-ahead for the other direction waits in the
#               socket behind megabytes of this one, and the directions take turns. Without: fragments of 128 KiB,
#               go-aheads between them. Exchange of 32 MiB at 1 and 2 Gbit/s: 456 and 996 Mbit/s each way with put,
#               939 and 1650 to 1850 without; four messages of 1 MiB each way at 1 Gbit/s, one MPI_Testall a
#               millisecond: 472 and 745 Mbit/s, 97 and 188 KiB a poll. Larger fragments, fixed socket buffers: no gain.
#               And it asks the receiver before every message above 64 KiB: one more look of both ends. Without that
#               (eager) flash, column f32 and row bf16 at 1 Gbit/s: 2.1 and 2.2 ms above computing alone, then 0.5 and 1.5.
#   MPICH       over UCX: nothing that was tried is better than its defaults (1960 Mbit/s each way; eager for all
#               sizes halves what a poll moves). One poll makes one small step of several rendezvous: 16 calls of
#               MPI_Testall a poll instead of one bring messages of 256 KiB from 349 to 829 Mbit/s.
fast()
{
    export OMPI_MCA_btl_tcp_flags=${OMPI_MCA_btl_tcp_flags:-send,inplace}
    export OMPI_MCA_btl_tcp_eager_limit=${OMPI_MCA_btl_tcp_eager_limit:-2097152}
    export OMPI_MCA_btl_tcp_rndv_eager_limit=${OMPI_MCA_btl_tcp_rndv_eager_limit:-$OMPI_MCA_btl_tcp_eager_limit}
}

# launch=(): the words that start ranks on all hosts.
prepare_launch()
{
    local i list=() with package=openmpi-bin
    for ((i = 0; i < hosts; i++)); do
        list+=("$lab-$i:$per_host")
    done
    with=$(IFS=, && echo "${list[*]}")
    [ -n "$plain" ] || fast
    case $mpi in
    openmpi)
        launch=(mpirun.openmpi --allow-run-as-root -np $((hosts * per_host)) --host "$with" --bind-to none
            --mca plm rsh --mca plm_rsh_agent "$here/netlab/enter.sh" --mca pml ob1
            --mca oob_tcp_if_include eth0 --mca btl_tcp_if_include eth0
            --mca btl "self,tcp$([ "$per_host" -eq 1 ] || echo ,vader)")
        ;;
    mpich)
        # Debian's MPICH sends through UCX, which would find its memory shared between the hosts
        package=mpich
        export UCX_TLS=tcp,self UCX_NET_DEVICES=eth0
        launch=(mpiexec.mpich -n $((hosts * per_host)) -hosts "$with" -iface eth0
            -launcher rsh -launcher-exec "$here/netlab/enter.sh")
        ;;
    *) stop 2 "--mpi is '$mpi', expected openmpi or mpich" ;;
    esac
    command -v "${launch[0]}" >/dev/null || stop 77 "'${launch[0]}' is missing, expected Debian's package \
'$package'; skipped"
    launch+=("${more[@]}")
    [ -z "$bind" ] || launch+=("$here/netlab/rank.sh")
}

pass_on() # signal
{
    signalled=1
    [ -z "$child" ] || kill "-$1" -- "-$child" 2>/dev/null || true
}

# on_host WORDS...: on host 0, in a process group of its own, until it ends; signals are passed on. What does not end
# within 10 s after a signal is removed with the lab.
on_host()
{
    local code=0 waited=0
    set -m
    "$here/netlab/enter.sh" "$lab-0" "$(printf '%q ' "$@")" <&0 &
    child=$!
    set +m
    wait "$child" || code=$?
    while [ -n "$signalled" ] && kill -0 "$child" 2>/dev/null && [ $waited -lt 100 ]; do
        sleep 0.1
        waited=$((waited + 1))
    done
    if [ -n "$signalled" ] && ! kill -0 "$child" 2>/dev/null; then
        code=0
        wait "$child" || code=$?
    fi
    return $code
}

# ---- the verbs ---------------------------------------------------------------------------------------------
run_lab() # verb words...
{
    local verb=$1 signal
    shift
    lab=$prefix-$$
    trap 'remove_lab "$lab"' EXIT
    for signal in HUP INT QUIT TERM; do
        # shellcheck disable=SC2064
        trap "pass_on $signal" $signal
    done
    make_lab
    prepare_launch
    export FO_NETLAB=$lab
    case $verb in
    run) on_host "${launch[@]}" "$@" ;;
    host) on_host "$@" ;;
    shell)
        FO_NETLAB_RUN=/etc/netns/$lab-0/run
        printf '#!/bin/sh\nexec %s "$@"\n' "$(printf '%q ' "${launch[@]}")" >"$FO_NETLAB_RUN"
        chmod +x "$FO_NETLAB_RUN"
        export FO_NETLAB_RUN
        "$here/netlab/enter.sh" "$lab-0" "${SHELL:-bash}" || true
        ;;
    esac
}

# The switch's end goes down: as with a pulled cable the host loses its carrier, not its addresses and routes.
change_link() # host up|down
{
    if [ -z "$lab" ]; then
        mapfile -t found < <(labs)
        [ ${#found[@]} -eq 1 ] || stop 2 "there are ${#found[@]} labs (${found[*]}), expected --lab NAME"
        lab=${found[0]}
    fi
    local port=port${1##*-}
    [[ "${2:-}" =~ ^(up|down)$ ]] || stop 2 "link got '${2:-}', expected: link HOST down|up"
    ip -n "$lab-switch" link set "$port" "$2" || stop 2 "$lab has no host '$1'"
}

list_labs()
{
    local name pids
    for name in $(labs); do
        lives "$name" && echo "$name" || echo "$name (its maker is gone: tools/netlab.sh clean)"
        pids=$(processes "$name" | paste -sd, -)
        [ -z "$pids" ] || ps -o pid,ppid,stat,etime,args -p "$pids"
    done
}

clean_labs()
{
    local name
    for name in $(labs); do
        lives "$name" || { echo "removing $name" && remove_lab "$name"; }
    done
}

while [ $# -gt 0 ]; do
    case $1 in
    --hosts | --ranks-per-host | --rate | --mpi | --launcher | --lab)
        [ $# -gt 1 ] || stop 2 "$1 needs a value"
        ;;&
    --hosts) hosts=$2 && shift 2 ;;
    --ranks-per-host) per_host=$2 && shift 2 ;;
    --rate) rate=$2 && shift 2 ;;
    --mpi) mpi=$2 && shift 2 ;;
    --launcher) read -ra more <<<"$2" && shift 2 ;;
    --lab) lab=$2 && shift 2 ;;
    --bind) bind=1 && shift ;;
    --no-bind) bind='' && shift ;;
    --plain) plain=1 && shift ;;
    *) break ;;
    esac
done
for number in "$hosts" "$per_host"; do
    if ! [[ "$number" =~ ^[0-9]+$ ]] || [ "$number" -lt 1 ] || [ "$number" -gt 200 ]; then
        stop 2 "--hosts and --ranks-per-host take numbers from 1 to 200, found '$number'"
    fi
done
verb=${1:-}
case $verb in
-- | host | shell) ;;
link | ps | clean) ;;
*)
    stop 2 "found '$verb', expected: tools/netlab.sh [OPTIONS] -- COMMAND ARGS..., host, shell, link, ps or clean"
    ;;
esac
shift
can_run
case $verb in
link) change_link "$@" ;;
ps) list_labs ;;
clean) clean_labs ;;
shell) run_lab shell ;;
*)
    [ "$verb" = -- ] || [ "${1:-}" != -- ] || shift
    [ $# -gt 0 ] || stop 2 "no command was given, expected: tools/netlab.sh [OPTIONS] -- COMMAND ARGS..."
    if [ "$verb" = -- ]; then run_lab run "$@"; else run_lab host "$@"; fi
    ;;
esac
