#!/usr/bin/env bash
# Makes a Python environment with the newest PyTorch that pip's index has, for bench/torch_step.py.
#   bench/torch_setup.sh FOLDER [PIP OPTIONS...]
# Does nothing when FOLDER has a PyTorch that works. PYTHON: the interpreter; default: the newest of 3.10 to
# 3.14 that is here. The general package brings libraries for accelerators (5 GB) and computes on the CPU
# like the CPU build; an index of CPU builds can be named with pip's own options or configuration.
set -euo pipefail

if [ $# -lt 1 ]; then
    echo "bench/torch_setup.sh: no folder was given, expected bench/torch_setup.sh FOLDER" >&2
    exit 2
fi
folder=$1
shift

works() { "$folder/bin/python" -c 'import torch; torch.ones(8, 8) @ torch.ones(8, 8)' 2>&1; }
version() { "$folder/bin/python" -c 'import torch; print(torch.__version__)'; }

if [ -x "$folder/bin/python" ] && works >/dev/null; then
    echo "$folder: PyTorch $(version)"
    exit 0
fi

usable() # interpreter
{
    "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info[:2] <= (3, 14))' \
        >/dev/null 2>&1
}

python=${PYTHON:-}
if [ -z "$python" ]; then
    for name in python3.14 python3.13 python3.12 python3.11 python3.10 python3; do
        if usable "$name"; then
            python=$name
            break
        fi
    done
fi
if [ -z "$python" ] || ! usable "$python"; then
    echo "bench/torch_setup.sh: ${python:-no python3 here} can't make an environment, expected Python 3.10" \
        "to 3.14 with its venv module (Debian: python3-venv), or PYTHON=interpreter" >&2
    exit 1
fi

log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "$python" -m venv "$folder" >"$log" 2>&1 ||
    ! "$folder/bin/python" -m pip install --upgrade torch numpy "$@" >>"$log" 2>&1; then
    tail -n 5 "$log" >&2
    echo "bench/torch_setup.sh: pip could not install torch and numpy for $("$python" --version) into" \
        "$folder; its last words are above" >&2
    exit 1
fi
if ! works >"$log"; then
    tail -n 3 "$log" >&2
    echo "bench/torch_setup.sh: PyTorch is installed in $folder but does not work; its last words are above" >&2
    exit 1
fi
command -v c++ >/dev/null 2>&1 ||
    echo "bench/torch_setup.sh: no C++ compiler here: torch.compile can't be measured (Debian: g++)" >&2
echo "$folder: PyTorch $(version)"
