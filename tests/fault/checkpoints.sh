# shellcheck shell=bash
# Whether what a killed run left can be trusted. Sourced by tools/failures.sh.

# whole_file FILE: a safetensors file as long as its header says? Prints what is wrong.
whole_file()
{
    local header size end
    size=$(stat -c %s "$1") || return 0
    header=$(od -An -tu8 -N8 "$1" | tr -d ' ')
    if [ -z "$header" ] || [ "$header" -lt 2 ] || [ $((header + 8)) -gt "$size" ]; then
        echo "$1 has $size bytes and says that its header has '$header'"
        return 0
    fi
    end=$(head -c $((header + 8)) "$1" | tail -c "$header" |
        grep -aoE '"data_offsets": *\[[0-9]+, *[0-9]+\]' | sed -E 's/.*, *([0-9]+)\]/\1/' | sort -n | tail -n 1)
    [ $((header + 8 + ${end:-0})) -eq "$size" ] ||
        echo "$1 has $size bytes, expected $((header + 8 + ${end:-0})) by its header"
}

# torn DIR: prints what is wrong with the checkpoints in it; nothing when every one is complete.
torn()
{
    local step file newest
    for step in "$1"/step-*; do
        [ -d "$step" ] || continue
        for file in model.safetensors optimizer.safetensors config.json; do
            [ -s "$step/$file" ] || echo "$step has no $file"
        done
        for file in "$step"/*.safetensors; do
            [ -f "$file" ] && whole_file "$file"
        done
    done
    if [ -f "$1/latest" ]; then
        newest=$(<"$1/latest")
        [ -d "$1/$newest" ] || echo "$1/latest names '$newest', which is not there"
    fi
}
