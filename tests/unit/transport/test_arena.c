/* The arena against a model: no two blocks overlap, what is given back comes together again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "base/random.h"
#include "transport/shm/shm.h"

enum { SIZE = 32 << 20 };

static void *map_arena(shm_arena *arena)
{
    void *memory = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(memory != MAP_FAILED);
    assert_int_equal(fo_transport_arena_init(arena, memory, SIZE), FO_OK);
    return memory;
}

static void unmap_arena(shm_arena *arena, void *memory)
{
    fo_transport_arena_free(arena);
    munmap(memory, SIZE);
}

static void test_whole(void **state)
{
    (void)state;
    shm_arena arena;
    void *memory = map_arena(&arena);
    assert_null(fo_transport_arena_take(&arena, SIZE + 1, true));
    assert_null(fo_transport_arena_take(&arena, SIZE_MAX, true));
    void *whole = fo_transport_arena_take(&arena, SIZE, true);
    assert_ptr_equal(whole, memory);
    assert_null(fo_transport_arena_take(&arena, 0, true));
    fo_transport_arena_give(&arena, whole, false);
    fo_transport_arena_give(&arena, whole, false); /* twice: no harm */
    assert_ptr_equal(fo_transport_arena_take(&arena, SIZE, true), memory);
    unmap_arena(&arena, memory);
}

static void test_alignment(void **state)
{
    (void)state;
    shm_arena arena;
    void *memory = map_arena(&arena);
    assert_int_equal((uintptr_t)fo_transport_arena_take(&arena, 1, true) % 64, 0);
    assert_int_equal((uintptr_t)fo_transport_arena_take(&arena, 65, true) % 64, 0);
    void *large = fo_transport_arena_take(&arena, 65536, true);
    assert_int_equal((uintptr_t)large % 4096, 0);
    /* the gap before it is used */
    void *small = fo_transport_arena_take(&arena, 100, true);
    assert_true(small < large);
    unmap_arena(&arena, memory);
}

static void check_cover(const shm_arena *arena)
{
    size_t at = 0;
    for (size_t i = 0; i < arena->count; i++) {
        assert_int_equal(arena->blocks[i].offset, at);
        assert_true(arena->blocks[i].bytes > 0);
        if (i)
            assert_true(arena->blocks[i].used || arena->blocks[i - 1].used);
        at += arena->blocks[i].bytes;
    }
    assert_int_equal(at, SIZE);
}

static void test_random_use(void **state)
{
    (void)state;
    enum { SLOTS = 200, STEPS = 6000 };
    shm_arena arena;
    void *memory = map_arena(&arena);
    unsigned char *blocks[SLOTS] = {0};
    size_t bytes[SLOTS] = {0};
    for (uint64_t step = 0; step < STEPS; step++) {
        uint64_t i = fo_base_random_below(1, 1, step, SLOTS);
        if (blocks[i]) {
            unsigned char mark = (unsigned char)(i + 1);
            for (size_t b = 0; b < bytes[i]; b += 61)
                assert_int_equal(blocks[i][b], mark); /* nobody wrote here */
            fo_transport_arena_give(&arena, blocks[i], fo_base_random_below(1, 4, step, 2));
            blocks[i] = NULL;
        } else {
            uint64_t most = fo_base_random_below(1, 2, step, 20) ? 8000 : 2000000;
            bytes[i] = (size_t)fo_base_random_below(1, 3, step, most);
            blocks[i] = fo_transport_arena_take(&arena, bytes[i], true);
            if (!blocks[i])
                continue;
            for (size_t b = 0; b < bytes[i]; b++)
                if (blocks[i][b])
                    fail_msg("byte %zu of %zu is not zero", b, bytes[i]);
            memset(blocks[i], (int)(i + 1), bytes[i]);
        }
        if (step % 50 == 0)
            check_cover(&arena);
    }
    for (int i = 0; i < SLOTS; i++)
        if (blocks[i])
            fo_transport_arena_give(&arena, blocks[i], false);
    check_cover(&arena);
    assert_int_equal(arena.count, 1);
    unmap_arena(&arena, memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_random_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
