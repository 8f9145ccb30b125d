#!/usr/bin/env bash
# messages.c under a launcher; the message of more than 2 GiB where there is memory for it and the library.
#   test_messages.sh FOLDER FAMILY PROGRAM
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
available=$(awk '/^MemAvailable/ {print int($2 / 1048576)}' /proc/meminfo)
[ "${available:-0}" -lt 8 ] || export FO_TEST_HUGE=1
export FLASHOVERLAP_MPI_DIR=$1 FLASHOVERLAP_MPI_SUBSET=1
bash "$here/launch.sh" "$2" 4 "$3"
