#!/usr/bin/env bash
# The cluster on one machine: hosts with names, ranks on them, exit codes, nothing left whatever ends it.
set -euo pipefail
. "$(dirname "$0")/lib.sh"

netlab=$source_folder/tools/netlab.sh
if ! reason=$("$netlab" ps 2>&1 >/dev/null); then
    echo "$reason"
    exit 77
fi

# lab WORDS...: out, err and code
lab()
{
    command_line="netlab.sh $*"
    code=0
    "$netlab" "$@" >"$work/.out" 2>"$work/.err" </dev/null || code=$?
    out=$(<"$work/.out")
    err=$(<"$work/.err")
}

# The lab that a process of netlab.sh made has left nothing.
nothing_of() # pid
{
    for _ in $(seq 50); do
        left=$(ip netns list | grep "^fonet-$1-" || true)
        [ -n "$left" ] || break
        sleep 0.1
    done
    [ -z "$left" ] || fail "$command_line: namespaces are left: $left"
    left=$(find /etc/netns "${TMPDIR:-/tmp}" -maxdepth 1 -name "*fonet-$1-*" 2>/dev/null || true)
    [ -z "$left" ] || fail "$command_line: files are left: $left"
}

lab
expect_code 2
lab --hosts none -- true
expect_code 2
lab --mpi none -- true
expect_code 2

# a host has a name of its own, the names of the others, and nothing else to talk to
lab host -- sh -c 'hostname; cat /etc/hosts; ip -o -4 address show; exit 4'
expect_code 4
expect_out '10.77.0.1/24' '127.0.0.1/8' '10.77.0.2 fonet-'
maker=$(head -n 1 "$work/.out" | cut -d- -f2)
nothing_of "$maker"

# the rate holds both ways: 4 MB at 100 Mbit/s need 0.32 s less one burst
cat >"$work/flood" <<'END'
(sleep 0.5; ip netns exec "$FO_NETLAB-1" bash -c 'exec 3<>/dev/tcp/10.77.0.1/7000; head -c 4000000 /dev/zero >&3') &
command -v python3 >/dev/null || { echo skipped; exit 0; }
python3 -c '
import socket, time
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("", 7000)); s.listen(1)
c = s.accept()[0]; n = 0; t = time.time()
while True:
    k = len(c.recv(1 << 16))
    if not k: break
    n += k
print("passed" if n == 4000000 and time.time() - t > 0.25 else "too fast: %d bytes in %.3f s" % (n, time.time() - t))'
END
lab --rate 100mbit host -- bash "$work/flood"
expect_code 0
[[ "$out" == *passed* || "$out" == *skipped* ]] || fail "$command_line: $out $err"

for mpi in openmpi mpich; do
    lab --mpi $mpi --hosts 2 --ranks-per-host 2 -- sh -c 'echo "$(hostname) $(taskset -cp $$ | sed "s/.*: //")"; sleep 1; exit 3'
    if [ "$code" -eq 77 ]; then
        echo "$err"
        continue
    fi
    expect_code 3
    expect_same "$mpi: hosts" "$(cut -d' ' -f1 "$work/.out" | grep -c fonet- || true)" 4
    expect_same "$mpi: different hosts" "$(grep -o 'fonet-[0-9]*-[0-9]*' "$work/.out" | sort -u | wc -l)" 2
    nothing_of "$(grep -om 1 'fonet-[0-9]*' "$work/.out" | cut -d- -f2)"

    # a signal, and a killed maker: what it leaves, `clean` removes
    for signal in TERM KILL; do
        command_line="netlab.sh --mpi $mpi -- sleep, SIG$signal"
        "$netlab" --mpi $mpi -- sleep 1000 >/dev/null 2>&1 </dev/null &
        maker=$!
        for _ in $(seq 100); do
            [ "$(pgrep -cfx 'sleep 1000' || true)" -lt 2 ] || break
            sleep 0.1
        done
        kill -$signal $maker
        wait $maker 2>/dev/null || true
        [ $signal = TERM ] || "$netlab" clean >/dev/null
        nothing_of $maker
    done
done

finish
