#!/usr/bin/env bash
# tools/lint.sh format|check-format|lint [BUILD]: clang-format over all C files, clang-tidy over the compiled.
set -euo pipefail

cd "$(dirname "$0")/.."
mapfile -t files < <(find cli examples include src tests -name '*.[ch]' | sort)

case ${1:-} in
format) clang-format -i "${files[@]}" ;;
check-format)
    if ! clang-format --dry-run -Werror "${files[@]}" 2>/dev/null; then
        for file in "${files[@]}"; do
            clang-format "$file" | cmp -s "$file" - || echo "$file is not formatted"
        done
        echo "tools/lint.sh: 'make format' formats these files" >&2
        exit 1
    fi
    ;;
lint)
    build=${2:-build}
    # vec/ uses vector types of GCC that clang does not know
    mapfile -t sources < <(find cli examples src -name '*.c' -not -path 'src/kernel/vec/*' | sort)
    printf '%s\n' "${sources[@]}" |
        xargs -P "${JOBS:-2}" -n 4 clang-tidy --quiet -p "$build" --warnings-as-errors='*' 2>/dev/null
    ;;
*)
    echo "tools/lint.sh: '${1:-}' is unknown, expected format, check-format or lint" >&2
    exit 2
    ;;
esac
