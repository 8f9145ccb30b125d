#!/usr/bin/env bash
# Runs a command with one more pair of words on one rank: one_differs.sh RANK OPTION VALUE COMMAND ARGS...
odd=$1 option=$2 value=$3
shift 3
if [ "${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-}}" = "$odd" ]; then
    exec "$@" "$option" "$value"
fi
exec "$@"
