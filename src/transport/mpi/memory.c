/* Memory of a rank: what is large comes straight from the kernel, in huge pages where it has them. */
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "transport/mpi/mpi.h"

/* In front of the bytes handed out. */
struct mpi_block {
    alignas(64) mpi_block *next;
    mpi_block *before;
    void *start; /* of the mapping or the allocation */
    size_t whole;
    size_t bytes;
};

#define HUGE_PAGE ((size_t)2 << 20)
#define LARGE (4 * HUGE_PAGE)

/* A mapping in which the block can begin at a huge page. */
static mpi_block *map_block(size_t bytes)
{
    size_t whole = bytes + sizeof(mpi_block) + HUGE_PAGE;
    char *start = mmap(NULL, whole, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    size_t skip = (HUGE_PAGE - (uintptr_t)start % HUGE_PAGE) % HUGE_PAGE;
    (void)madvise(start + skip, whole - skip, MADV_HUGEPAGE); /* a wish */
    mpi_block *block = (mpi_block *)(start + skip);
    block->start = start;
    block->whole = whole;
    return block;
}

static mpi_block *allocate_block(size_t bytes)
{
    size_t whole = sizeof(mpi_block) + (bytes + 63) / 64 * 64;
    mpi_block *block = aligned_alloc(64, whole);
    if (!block)
        return NULL;
    memset(block, 0, whole);
    block->start = block;
    return block;
}

void *fo_transport_mpi_memory_take(mpi_memory *memory, size_t bytes)
{
    if (bytes > memory->left)
        return NULL;
    mpi_block *block = bytes >= LARGE ? map_block(bytes) : allocate_block(bytes);
    if (!block)
        return NULL;
    block->bytes = bytes;
    block->next = memory->blocks;
    if (memory->blocks)
        memory->blocks->before = block;
    memory->blocks = block;
    memory->left -= bytes;
    return block + 1;
}

static void free_block(mpi_memory *memory, mpi_block *block)
{
    *(block->before ? &block->before->next : &memory->blocks) = block->next;
    if (block->next)
        block->next->before = block->before;
    memory->left += block->bytes;
    if (block->whole)
        munmap(block->start, block->whole);
    else
        free(block->start);
}

void fo_transport_mpi_memory_give(mpi_memory *memory, void *bytes)
{
    if (bytes)
        free_block(memory, (mpi_block *)bytes - 1);
}

void fo_transport_mpi_memory_free(mpi_memory *memory)
{
    while (memory->blocks)
        free_block(memory, memory->blocks);
}
