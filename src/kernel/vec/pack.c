/* Packing of a weight into panels, with conversion and transposition. */
#include "kernel/vec/fill.h"
#include "kernel/vec/math.h"

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

static void pack(const fo_kernel_panels *p, const float *b, bool transposed, void *packed)
{
    int threads = fo_kernel_threads();
    int64_t panels = (p->n + p->panel - 1) / p->panel;
#pragma omp parallel for if (threads > 1 && panels > 1) num_threads(threads)
    for (int64_t panel = 0; panel < panels; panel++)
        pack_panel(p, b, transposed, panel * p->panel,
                   (uint32_t *)packed + panel * p->panel * (p->k_padded / p->pair));
}

void FO_VEC(fo_kernel_vec_fill_pack)(fo_kernel_vec *table)
{
    table->pack = pack;
}
