#!/usr/bin/env bash
# Runs a command line on a host of the lab, as ssh would on a machine: in its network namespace, under its
# host name. Launchers call it instead of ssh: tools/netlab/enter.sh HOST WORDS...
# As after ssh the words are a line for a shell: both launchers quote them for one.
host=$1
shift
# shellcheck disable=SC2016
exec ip netns exec "$host" unshare --uts bash -c 'hostname "$0" && eval "$1"' "$host" "$*"
