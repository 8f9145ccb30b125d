/* Memory of a model: everything is taken when it is made and given back at once. */
#include <stdlib.h>
#include <sys/mman.h>

#include "base/error.h"
#include "model/state.h"

/* Large arrays begin at a huge page and ask for huge pages: products walk them in long strides. */
enum { ALIGN = 64, HUGE_PAGE = 2 << 20 };

struct fo_model_memory {
    fo_model_memory *next;
    void *block;
    bool travels;
};

static void *take_own(size_t bytes, void **block)
{
    size_t align = bytes >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : ALIGN;
    *block = calloc(1, bytes + align); /* fresh pages are zero already and not touched */
    if (!*block)
        return NULL;
    char *start = (char *)(((uintptr_t)*block + align - 1) / align * align);
#ifdef MADV_HUGEPAGE
    if (align == HUGE_PAGE)
        (void)madvise(start, bytes / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
    return start;
}

void *fo_model_memory_take(fo_model *model, size_t bytes, bool travels)
{
    fo_model_memory *entry = calloc(1, sizeof *entry);
    void *start = NULL;
    bytes = (bytes / ALIGN + 1) * ALIGN;
    if (entry && travels)
        start = entry->block = fo_group_alloc(model->world, bytes);
    else if (entry)
        start = take_own(bytes, &entry->block);
    if (!start) {
        free(entry);
        fo_base_error(
            FO_NO_MEMORY,
            "no memory for %zu bytes of the model; choose a smaller model, context or batch, or "
            "more ranks",
            bytes);
        return NULL;
    }
    entry->travels = travels;
    entry->next = model->memory;
    model->memory = entry;
    return start;
}

void fo_model_memory_free(fo_model *model)
{
    while (model->memory) {
        fo_model_memory *entry = model->memory;
        model->memory = entry->next;
        if (entry->travels)
            fo_group_free(model->world, entry->block);
        else
            free(entry->block);
        free(entry);
    }
}
