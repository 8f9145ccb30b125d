/* The blocks cover the arena without gaps, sorted by offset; neighbours that are free are merged.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "transport/shm/shm.h"

enum { ALIGN = 64, LARGE = 64 << 10, RETURN = 1 << 20 };

static size_t page_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

static size_t round_up(size_t value, size_t unit)
{
    return (value + unit - 1) / unit * unit;
}

fo_status fo_transport_arena_init(shm_arena *arena, void *memory, size_t size)
{
    *arena = (shm_arena){.memory = memory, .size = size, .capacity = 64};
    arena->blocks = malloc(arena->capacity * sizeof *arena->blocks);
    if (!arena->blocks)
        return fo_base_error(FO_NO_MEMORY, "no memory for the list of an arena");
    arena->blocks[0] = (shm_block){.offset = 0, .bytes = size, .zero = true};
    arena->count = 1;
    return FO_OK;
}

void fo_transport_arena_free(shm_arena *arena)
{
    free(arena->blocks);
    arena->blocks = NULL;
    arena->count = 0;
}

/* Room for two more blocks, so that a split cannot fail half-way. */
static bool reserve_blocks(shm_arena *arena)
{
    if (arena->count + 2 <= arena->capacity)
        return true;
    shm_block *blocks = realloc(arena->blocks, arena->capacity * 2 * sizeof *blocks);
    if (!blocks)
        return false;
    arena->blocks = blocks;
    arena->capacity *= 2;
    return true;
}

/* Cuts block `index` so that it ends after `bytes`; what is behind becomes the next block. */
static void split_block(shm_arena *arena, size_t index, size_t bytes)
{
    shm_block *block = &arena->blocks[index];
    if (bytes == block->bytes)
        return;
    memmove(block + 2, block + 1, (arena->count - index - 1) * sizeof *block);
    block[1] = (shm_block){.offset = block->offset + bytes,
                           .bytes = block->bytes - bytes,
                           .zero = block->zero};
    block->bytes = bytes;
    arena->count++;
}

/* Merges block `index` with the next one when both are free. */
static void merge_blocks(shm_arena *arena, size_t index)
{
    shm_block *block = &arena->blocks[index];
    if (index + 1 >= arena->count || block[0].used || block[1].used)
        return;
    block->bytes += block[1].bytes;
    block->zero = block->zero && block[1].zero; /* what is past arena->clean is zero all the same */
    memmove(block + 1, block + 2, (arena->count - index - 2) * sizeof *block);
    arena->count--;
}

void *fo_transport_arena_take(shm_arena *arena, size_t bytes, bool zeroed)
{
    size_t align = bytes >= LARGE ? page_size() : ALIGN;
    if (bytes > arena->size || !reserve_blocks(arena))
        return NULL;
    size_t need = round_up(bytes ? bytes : 1, align);
    for (size_t i = 0; i < arena->count; i++) {
        shm_block *block = &arena->blocks[i];
        size_t begin = round_up(block->offset, align);
        if (block->used || begin + need > block->offset + block->bytes)
            continue;
        if (begin > block->offset)
            split_block(arena, i++, begin - block->offset);
        split_block(arena, i, need);
        arena->blocks[i].used = true;
        if (zeroed && begin < arena->clean && !arena->blocks[i].zero)
            memset(arena->memory + begin, 0,
                   begin + need < arena->clean ? need : arena->clean - begin);
        if (begin + need > arena->clean)
            arena->clean = begin + need;
        arena->blocks[i].zero = false;
        return arena->memory + begin;
    }
    return NULL;
}

void fo_transport_arena_give(shm_arena *arena, void *memory, bool keep)
{
    size_t offset = (size_t)((char *)memory - arena->memory), low = 0, high = arena->count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (arena->blocks[middle].offset <= offset)
            low = middle;
        else
            high = middle;
    }
    shm_block *block = &arena->blocks[low];
    if (block->offset != offset || !block->used)
        return; /* not ours, or given back before */
    if (!keep && block->bytes >= RETURN)
        block->zero = madvise(memory, block->bytes, MADV_REMOVE) == 0;
    block->used = false;
    merge_blocks(arena, low);
    if (low > 0)
        merge_blocks(arena, low - 1);
}
