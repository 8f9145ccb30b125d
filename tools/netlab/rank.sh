#!/usr/bin/env bash
# Runs one rank on a core of its own: every host of the lab believes that it has all cores to itself, so no
# launcher can keep the ranks of different hosts apart. tools/netlab/rank.sh COMMAND ARGS...
rank=${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-0}}
mapfile -t cores < <(taskset -cp $$ | sed 's/.*: //' | tr , '\n' |
    awk -F- '{ for (i = $1; i <= ($2 == "" ? $1 : $2); i++) print i }')
exec taskset -c "${cores[rank % ${#cores[@]}]}" "$@"
