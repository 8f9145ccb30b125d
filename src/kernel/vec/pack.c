/* Packing of a weight into panels, with conversion and transposition. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

enum { PANEL = 64 }; /* rows or columns that the packing of dense matrices makes of a matrix */

/* Transposes 16 x 16 words in four rounds of interleaving halves. */
FO_VEC_INLINE void transpose16(u16 x[LANES])
{
    const i16 low = {0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23};
    const i16 high = {8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    for (int round = 0; round < 4; round++) {
        u16 y[LANES];
        for (int i = 0; i < LANES / 2; i++) {
            y[2 * i] = __builtin_shuffle(x[i], x[i + LANES / 2], low);
            y[2 * i + 1] = __builtin_shuffle(x[i], x[i + LANES / 2], high);
        }
        memcpy(x, y, sizeof y);
    }
}

/* Two vectors of consecutive values of which pairs go into one word: even ones below. */
FO_VEC_INLINE u16 pair_words(v16 a, v16 b)
{
    h16 half[2] = {to_bf16(a), to_bf16(b)};
    u16 words;
    memcpy(&words, half, sizeof words);
    return words;
}

/* Lanes i, i + 1, ... of x[n]; 0 past its end. */
FO_VEC_INLINE v16 load_guarded(const float *x, int64_t i, int64_t n)
{
    if (i + LANES <= n)
        return load_f32(x + i);
    return i >= n ? (v16){0} : load_n(x, FO_F32, i, n - i);
}

/* 16 columns of b stored as [n, k], from column j and row i on: one word a lane, `pair` rows a word. */
FO_VEC_INLINE void pack_block_transposed(const fo_kernel_panels *p, const float *b, int64_t i,
                                         int64_t j, u16 out[LANES])
{
    for (int lane = 0; lane < LANES; lane++) {
        if (j + lane >= p->n) {
            out[lane] = (u16){0};
            continue;
        }
        const float *row = b + (j + lane) * p->k;
        v16 a = load_guarded(row, i, p->k);
        out[lane] = p->pair == 2 ? pair_words(a, load_guarded(row, i + LANES, p->k)) : (u16)a;
    }
    transpose16(out);
}

/* 16 columns of b stored as [k, n]: the words of rows i and, of a pair, i + 1. */
FO_VEC_INLINE u16 pack_row(const fo_kernel_panels *p, const float *b, int64_t i, int64_t j)
{
    v16 a = i < p->k ? load_guarded(b + i * p->n, j, p->n) : (v16){0};
    if (p->pair == 1)
        return (u16)a;
    v16 c = i + 1 < p->k ? load_guarded(b + (i + 1) * p->n, j, p->n) : (v16){0};
    return (round_bf16(a) >> 16) | (round_bf16(c) & 0xffff0000u);
}

/* One panel: words [k_padded / pair][panel]. */
static void pack_panel(const fo_kernel_panels *p, const float *b, bool transposed, int64_t column,
                       uint32_t *words)
{
    int64_t rows = p->k_padded / p->pair;
    for (int64_t j = 0; j < p->panel; j += LANES) {
        if (!transposed) {
            for (int64_t row = 0; row < rows; row++) {
                u16 word = pack_row(p, b, row * p->pair, column + j);
                memcpy(words + row * p->panel + j, &word, sizeof word);
            }
            continue;
        }
        for (int64_t row = 0; row < rows; row += LANES) {
            u16 block[LANES];
            pack_block_transposed(p, b, row * p->pair, column + j, block);
            for (int64_t i = 0; i < LANES && row + i < rows; i++)
                memcpy(words + (row + i) * p->panel + j, &block[i], sizeof block[i]);
        }
    }
}

static void pack(const fo_kernel_panels *p, const float *b, bool transposed, int64_t first,
                 int64_t count, void *packed)
{
    int threads = fo_kernel_threads();
#pragma omp parallel for if (threads > 1 && count > 1) num_threads(threads)
    for (int64_t panel = first; panel < first + count; panel++)
        pack_panel(p, b, transposed, panel * p->panel,
                   (uint32_t *)packed + panel * p->panel * (p->k_padded / p->pair));
}

/* 16 words of a row of n bytes, from byte i on; 0 past its end. */
FO_VEC_INLINE u16 load_words(const char *row, int64_t i, int64_t n)
{
    u16 words = {0};
    if (i + (int64_t)sizeof words <= n)
        memcpy(&words, row + i, sizeof words);
    else if (i < n)
        memcpy(&words, row + i, (size_t)(n - i));
    return words;
}

/* A pair of bf16 is a word in x as it is in the panel: words are transposed for either type. */
static void pack_columns(const void *x, fo_dtype dtype, int64_t rows, int64_t n, int64_t k_padded,
                         void *packed)
{
    int64_t bytes = n * (int64_t)fo_dtype_size(dtype);
    int64_t words = dtype == FO_BF16 ? k_padded / 2 : k_padded;
    uint32_t *to = packed;
    for (int64_t column = 0; column < PANEL; column += LANES)
        for (int64_t word = 0; word < words; word += LANES) {
            u16 block[LANES];
            for (int64_t i = 0; i < LANES; i++)
                block[i] = column + i < rows
                               ? load_words((const char *)x + (column + i) * bytes, word * 4, bytes)
                               : (u16){0};
            transpose16(block);
            for (int64_t i = 0; i < LANES && word + i < words; i++)
                memcpy(to + (word + i) * PANEL + column, &block[i], sizeof block[i]);
        }
}

/* 16 columns of a row, of bf16 one a word; 0 past its end and past the last row. */
FO_VEC_INLINE u16 row_words(const void *x, fo_dtype dtype, int64_t row, int64_t rows, int64_t j,
                            int64_t n)
{
    if (row >= rows)
        return (u16){0};
    v16 v = j + LANES <= n ? load16(x, dtype, row * n + j) : load_n(x, dtype, row * n + j, n - j);
    return dtype == FO_BF16 ? (u16)v >> 16 : (u16)v;
}

FO_VEC_INLINE void pack_rows_of(const void *x, fo_dtype dtype, int64_t rows, int64_t n,
                                int64_t panel, uint32_t *to)
{
    int pair = dtype == FO_BF16 ? 2 : 1;
    for (int64_t row = 0; row < PANEL; row += pair, to += panel)
        for (int64_t j = 0; j < n; j += LANES) {
            u16 words = row_words(x, dtype, row, rows, j, n);
            if (pair == 2)
                words |= row_words(x, dtype, row + 1, rows, j, n) << 16;
            memcpy(to + j, &words, sizeof words);
        }
}

static void pack_rows(const void *x, fo_dtype dtype, int64_t rows, int64_t n, int64_t panel,
                      void *packed)
{
    if (dtype == FO_BF16)
        pack_rows_of(x, FO_BF16, rows, n, panel, packed);
    else
        pack_rows_of(x, FO_F32, rows, n, panel, packed);
}

/* A panel of bf16 rows: words of two of them. */
static void pack_panel_bf16(const fo_kernel_panels *p, const void *b, int64_t column,
                            uint32_t *words)
{
    for (int64_t row = 0; row < p->k_padded; row += 2, words += p->panel)
        for (int64_t j = 0; j < p->panel; j += LANES) {
            u16 pair = {0};
            if (column + j < p->n)
                pair = row_words(b, FO_BF16, row, p->k, column + j, p->n) |
                       row_words(b, FO_BF16, row + 1, p->k, column + j, p->n) << 16;
            memcpy(words + j, &pair, sizeof pair);
        }
}

static void pack_typed(const fo_kernel_panels *p, const void *b, int64_t first, int64_t count,
                       void *packed)
{
    int threads = fo_kernel_threads();
    if (p->pair == 1) {
        pack(p, b, false, first, count, packed);
        return;
    }
#pragma omp parallel for if (threads > 1 && count > 1) num_threads(threads)
    for (int64_t panel = first; panel < first + count; panel++)
        pack_panel_bf16(p, b, panel * p->panel,
                        (uint32_t *)packed + panel * p->panel * (p->k_padded / 2));
}

void FO_VEC(fo_kernel_vec_fill_pack)(fo_kernel_vec *table)
{
    table->pack = pack;
    table->pack_typed = pack_typed;
    table->pack_columns = pack_columns;
    table->pack_rows = pack_rows;
}
