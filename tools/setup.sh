#!/usr/bin/env bash
# Installs what the build needs and the machine lacks (Debian, Ubuntu). Silent and offline when nothing is
# missing. Words: text (the default training text), lint (formatter and linter), bench (valgrind, time), browser
# (headless Chromium, for the test of the report), mpi (Open MPI and MPICH, for ranks on other machines).
set -euo pipefail

missing=()

need_command() # command package
{
    command -v "$1" >/dev/null 2>&1 || missing+=("$2")
}

need_header() # header package
{
    local compiler
    compiler=$(command -v "${CC:-cc}" || true)
    if [ -z "$compiler" ] || ! echo "#include <$1>" | "$compiler" -E -x c - >/dev/null 2>&1; then
        missing+=("$2")
    fi
}

find_missing()
{
    missing=()
    need_command "${CC:-cc}" build-essential
    need_command make build-essential
    need_header stdio.h build-essential
    need_command cmake cmake
    need_command pkg-config pkg-config
    need_header dnnl.h libdnnl-dev
    need_header jansson.h libjansson-dev
    # cmocka's header does not stand alone
    need_header "stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h" libcmocka-dev
    for word in "$@"; do
        case $word in
        text) need_command bible bible-kjv ;;
        lint)
            need_command clang-format clang-format
            need_command clang-tidy clang-tidy
            ;;
        bench)
            need_command valgrind valgrind
            need_command /usr/bin/time time
            ;;
        browser)
            command -v chromium-browser google-chrome >/dev/null 2>&1 || need_command chromium chromium
            ;;
        mpi)
            need_command mpirun.openmpi openmpi-bin
            need_command mpicc.openmpi libopenmpi-dev
            need_command mpiexec.mpich mpich
            need_command mpicc.mpich libmpich-dev
            ;;
        *)
            echo "tools/setup.sh: '$word' is unknown, expected text, lint, bench, browser or mpi" >&2
            exit 2
            ;;
        esac
    done
    if [ ${#missing[@]} -gt 0 ]; then
        mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    fi
}

find_missing "$@"
[ ${#missing[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null 2>&1; then
    echo "tools/setup.sh: this machine lacks what Debian calls ${missing[*]}, and has no apt-get to" \
        "install it with; please install these with your system's package manager" >&2
    exit 1
fi

as_root=()
if [ "$(id -u)" -ne 0 ]; then
    if ! command -v sudo >/dev/null 2>&1; then
        echo "tools/setup.sh: ${missing[*]} must be installed, but this is not root and there is no" \
            "sudo; run as root: apt-get install ${missing[*]}" >&2
        exit 1
    fi
    as_root=(sudo)
fi

echo "installing ${missing[*]}${as_root:+ (sudo may ask for your password)}"
install=("${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq
    --no-install-recommends "${missing[@]}")
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! "${install[@]}" >"$log" 2>&1; then
    # lists missing or old
    "${as_root[@]}" apt-get update -qq >>"$log" 2>&1 || true
    if ! "${install[@]}" >>"$log" 2>&1; then
        tail -n 15 "$log" >&2
        echo "tools/setup.sh: apt-get could not install ${missing[*]}; its last words are above" >&2
        exit 1
    fi
fi

find_missing "$@"
if [ ${#missing[@]} -gt 0 ]; then
    echo "tools/setup.sh: installed, but ${missing[*]} can still not be used; is ${CC:-cc} the" \
        "system's compiler?" >&2
    exit 1
fi
