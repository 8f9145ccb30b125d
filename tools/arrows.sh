#!/usr/bin/env bash
# Checks the house rules of ARCHITECTURE.md: who includes whom, names, lengths, forbidden words.
#   tools/arrows.sh [ROOT [BUILD]]    BUILD: a build folder, to check exported names too
# Prints one sentence a broken rule; exit code 1 when there is any.
set -euo pipefail

root=${1:-$(dirname "$0")/..}
build=${2:-}
[ -z "$build" ] || build=$(cd "$build" && pwd)
cd "$root"
broken=0

say()
{
    echo "arrows: $*"
    broken=1
}

# ---- the table: room -> rooms it may include ------------------------------------------------------------
declare -A may
while IFS='|' read -r room rooms; do
    read -ra words <<<"$rooms"
    may[$room]=" ${words[*]:-} "
done < <(awk -F'|' '/^## /{on = $0 == "## Rooms"} /^Beside /{on = 0}
    on && $2 ~ /`[a-z]+`/ {gsub(/[` ]/, "", $2); gsub(/,/, " ", $4); print $2 "|" $4}' ARCHITECTURE.md)
if [ "${#may[@]}" -eq 0 ]; then
    say "ARCHITECTURE.md has no table of rooms under '## Rooms'"
fi

for folder in src/*/; do
    room=$(basename "$folder")
    [ -n "${may[$room]+known}" ] || say "src/$room/ is not in the table of rooms of ARCHITECTURE.md"
done
for room in "${!may[@]}"; do
    [ -d "src/$room" ] || say "the table of rooms names '$room', but there is no src/$room/"
    for other in ${may[$room]}; do
        [ -n "${may[$other]+known}" ] || say "room '$room' may include '$other', which is no room"
    done
done

# ---- includes ----------------------------------------------------------------------------------------
# Lines "file:number:header" of quoted includes, or of those in angle brackets.
quoted() { grep -rnHoE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]+"' "$@" |
    sed -E 's/:[^:"]*"([^"]+)"$/:\1/' || true; }
angled() { grep -rnHoE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*<[^>]+>' "$@" |
    sed -E 's/:[^:<]*<([^>]+)>$/:\1/' || true; }

while IFS=: read -r file line header; do
    room=${file#src/}
    room=${room%%/*}
    target=${header%%/*}
    if [ "$target" = flashoverlap ]; then
        [ -f "include/$header" ] || say "$file:$line: there is no public header $header"
    elif [ "$target" = "$room" ]; then
        [ -f "src/$header" ] || say "$file:$line: there is no src/$header"
    elif [ "$target" = "$header" ]; then
        say "$file:$line: \"$header\" is not written from src/, expected \"$room/$header\""
    elif [[ "${may[$room]:-}" != *" $target "* ]]; then
        allowed=${may[$room]:- nothing }
        say "$file:$line: room '$room' must not include \"$header\", it may include:${allowed% }"
    elif [[ "${header#*/}" == */* ]]; then
        say "$file:$line: \"$header\" is inside room '$target', only its top headers may be included"
    fi
done < <(quoted src)

while IFS=: read -r file line header; do
    [[ "$header" == flashoverlap/* ]] || say "$file:$line: a public header must not include \"$header\""
done < <(quoted include)

while IFS=: read -r file line header; do
    [[ "$header" == flashoverlap/* || -f "${file%/*}/$header" ]] ||
        say "$file:$line: ${file%/*}/ must not include \"$header\", only public headers"
done < <(quoted cli examples)

# ---- vendor headers: only in their folders --------------------------------------------------------------
while IFS=: read -r file line header; do
    case $header in
    dnnl*) homes="src/kernel/onednn/" ;;
    omp.h) homes="src/kernel/" ;;
    jansson*) homes="src/checkpoint/ src/train/ src/sim/ src/planner/" ;;
    cblas*) homes="src/kernel/cblas/" ;;
    mpi*) homes="src/transport/mpi/" ;;
    nccl*) homes="src/transport/nccl/" ;;
    cuda* | cublas*) homes="src/kernel/cuda/ src/transport/nccl/ src/transport/cuda_ipc/" ;;
    assert.h) say "$file:$line: <assert.h> in the library; return a status instead" && continue ;;
    *) continue ;;
    esac
    fits=0
    for home in $homes; do
        [[ "$file" == "$home"* ]] && fits=1
    done
    [ $fits -eq 1 ] || say "$file:$line: <$header> belongs in $homes only"
done < <(angled src include cli examples)

# ---- words ---------------------------------------------------------------------------------------------
# "file:number:code" of each line, without comments and strings.
code()
{
    awk 'FNR == 1 { inside = 0 }
    {
        line = $0; out = ""
        while (line != "") {
            if (inside) {
                at = index(line, "*/")
                if (!at) { line = ""; break }
                line = substr(line, at + 2); inside = 0
            } else if (match(line, /\/\*|\/\/|"([^"\\]|\\.)*"|\047([^\047\\]|\\.)*\047/)) {
                found = substr(line, RSTART, RLENGTH)
                out = out substr(line, 1, RSTART - 1) " "
                line = substr(line, RSTART + RLENGTH)
                if (found == "/*") inside = 1
                else if (found == "//") line = ""
            } else { out = out line; line = "" }
        }
        print FILENAME ":" FNR ":" out
    }' "$@"
}

mapfile -t sources < <(find src -name '*.[ch]' | sort)
while IFS=: read -r file line _; do
    say "$file:$line: exit or abort in the library; return a status instead"
done < <(code "${sources[@]}" | grep -E '^[^:]*:[0-9]*:(.*[^_[:alnum:]])?(exit|abort|quick_exit)[[:space:]]*\(' || true)

while IFS=: read -r file line _; do
    say "$file:$line: fast-math changes results"
done < <(grep -rnHE -e '-(ffast-math|Ofast|funsafe-math-optimizations|fassociative-math)' \
    -e '(GCC|STDC)[^"]*fast-math' CMakeLists.txt cmake Makefile src cli include 2>/dev/null || true)

while read -r lines file; do
    [ "$file" = total ] || [ "$lines" -le 800 ] || say "$file has $lines lines, expected at most 800"
done < <(find src include cli examples tests tools -type f \( -name '*.[ch]' -o -name '*.sh' \) \
    -exec wc -l {} +)

# ---- exported names --------------------------------------------------------------------------------------
if [ -n "$build" ]; then
    public=$(cat include/flashoverlap/*.h)
    for room in "${!may[@]}"; do
        library=$build/libfo_$room.a
        if [ ! -f "$library" ]; then
            say "$library is missing, expected it to be built"
            continue
        fi
        while read -r name; do
            [[ "$name" == fo_"$room"_* || "$name" == __* ]] && continue
            grep -qE "(^|[^[:alnum:]_])$name([^[:alnum:]_]|$)" <<<"$public" ||
                say "src/$room/ exports $name, expected a name that begins with fo_${room}_ or is public"
        done < <(nm -g --defined-only "$library" 2>/dev/null | awk 'NF == 3 {print $3}' | sort -u)
    done
fi

exit $broken
