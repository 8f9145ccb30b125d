#!/usr/bin/env bash
# A test program that loops over the transports, in a job: there only the transport of the job is tested.
#   test_suite.sh FOLDER FAMILY PROCESSES PROGRAM
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
export FLASHOVERLAP_MPI_DIR=$1 FLASHOVERLAP_MPI_SUBSET=1
bash "$here/launch.sh" "$2" "$3" "$4"
