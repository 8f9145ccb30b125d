/* What all ranks must have been given alike: compared before anything depends on it.
 *
 * A fingerprint is text, a line a field: its kind, its name, a tab, its value. Its size is fixed, so that ranks
 * that differ in everything else can still compare it. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/error.h"
#include "flashoverlap/version.h"
#include "group/group.h"
#include "train/train.h"

enum {
    LINE = 200,   /* a line at most; of longer values a hash */
    BLOCKS = 64,  /* of a file that are looked at */
    BLOCK = 4096, /* bytes */
    VALUES = 3,   /* different values that a sentence names */
    SENTENCE = 1020
};

/* The kinds of fields: how the sentence about a difference ends. */
static const struct {
    char kind;
    const char *advice;
} kinds[] = {
    {FO_TRAIN_OPTION, "every rank must be given the same options"},
    {FO_TRAIN_FILE, "every rank needs the same file"},
    {FO_TRAIN_PROGRAM, "every rank must run the same program"},
};

/* ---- writing ---------------------------------------------------------------------------------------- */

static uint64_t hash(uint64_t value, const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    for (size_t i = 0; i < count; i++)
        value = (value ^ at[i]) * UINT64_C(0x100000001b3);
    return value;
}

static const uint64_t hash_begin = UINT64_C(0xcbf29ce484222325);

void fo_train_fingerprint_add(fo_train_fingerprint *f, char kind, const char *name,
                              const char *format, ...)
{
    char value[1024], line[LINE];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    for (char *at = value; *at; at++)
        if (*at == '\n' || *at == '\t')
            *at = ' ';
    int most = LINE - 32 - (int)strlen(name);
    if ((int)strlen(value) <= most)
        snprintf(line, sizeof line, "%c%s\t%.*s\n", kind, name, most, value);
    else
        snprintf(line, sizeof line, "%c%s\t%.*s... (%016" PRIx64 ")\n", kind, name, most - 24,
                 value, hash(hash_begin, value, strlen(value)));
    size_t used = strlen(f->text), length = strlen(line);
    if (used + length < sizeof f->text)
        memcpy(f->text + used, line, length + 1);
}

void fo_train_fingerprint_begin(fo_train_fingerprint *f, const char *command)
{
    *f = (fo_train_fingerprint){.status = FO_OK};
    fo_train_fingerprint_add(f, FO_TRAIN_PROGRAM, "the version", "%s", FO_VERSION);
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, "the command", "%s", command);
}

void fo_train_fingerprint_count(fo_train_fingerprint *f, const char *name, int64_t value)
{
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, name, "%" PRId64, value);
}

void fo_train_fingerprint_real(fo_train_fingerprint *f, const char *name, double value)
{
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, name, "%.9g", value);
}

void fo_train_fingerprint_word(fo_train_fingerprint *f, const char *name, const char *value)
{
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, name, "%s", value ? value : "not given");
}

void fo_train_fingerprint_group(fo_train_fingerprint *f, const fo_group_options *o)
{
    fo_train_fingerprint_count(f, "--nodes", o->nodes);
    fo_train_fingerprint_real(f, "--deadline", o->deadline_s > 0 ? o->deadline_s : 60);
    fo_train_fingerprint_add(f, FO_TRAIN_OPTION, "--link", "%.9g B/s, %.9g s, %s",
                             o->link.bytes_per_s, o->link.latency_s,
                             o->link.topology == FO_MESH ? "mesh" : "switch");
    fo_train_fingerprint_real(f, "the emulated device's rate", o->device.flops_per_s);
}

/* The whole of a small file; of a large one blocks from its first to its last. */
static bool hash_file(int file, int64_t size, uint64_t *value)
{
    char block[BLOCK];
    int64_t blocks = (size + BLOCK - 1) / BLOCK, taken = blocks < BLOCKS ? blocks : BLOCKS;
    *value = hash_begin;
    for (int64_t i = 0; i < taken; i++) {
        int64_t at = blocks <= BLOCKS ? i * BLOCK : i * (size - BLOCK) / (BLOCKS - 1);
        ssize_t got = pread(file, block, sizeof block, (off_t)at);
        if (got < 0)
            return false;
        *value = hash(*value, block, (size_t)got);
    }
    return true;
}

static void add_file(fo_train_fingerprint *f, char kind, const char *name, const char *path)
{
    struct stat about;
    uint64_t value = 0;
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file >= 0 && fstat(file, &about) == 0 && hash_file(file, about.st_size, &value))
        fo_train_fingerprint_add(f, kind, name, "%lld bytes with hash %016" PRIx64,
                                 (long long)about.st_size, value);
    else
        fo_train_fingerprint_add(f, kind, name, "unreadable");
    if (file >= 0)
        close(file);
}

void fo_train_fingerprint_file(fo_train_fingerprint *f, const char *name, const char *path)
{
    add_file(f, FO_TRAIN_FILE, name, path);
}

/* What only a rank knows of itself. Instruction sets and builds may differ: the bits then differ, too. */
static void add_own(fo_train_fingerprint *f, const fo_group *group)
{
    fo_train_fingerprint_word(f, "--kernel", fo_group_kernel(group));
    fo_train_fingerprint_add(f, FO_TRAIN_NOTE, "the instruction set", "%s",
                             fo_group_kernel_ops(group)->isa());
    add_file(f, FO_TRAIN_NOTE, "the program's file", "/proc/self/exe");
}

/* ---- comparing -------------------------------------------------------------------------------------- */

/* The value of a field, "" when there is none; copied. */
static void value_of(const fo_train_fingerprint *f, const char *line, size_t name, char *value)
{
    const char *at = f->text;
    value[0] = '\0';
    for (; *at; at += strcspn(at, "\n"), at += *at == '\n')
        if (!strncmp(at, line, name) && at[name] == '\t') {
            at += name + 1;
            snprintf(value, LINE, "%.*s", (int)strcspn(at, "\n"), at);
            return;
        }
}

/* Text that is cut off where it would not fit. */
typedef struct words {
    char *text;
    size_t size, used;
} words;

static void put(words *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(words *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    if (w->used < w->size) {
        int length = vsnprintf(w->text + w->used, w->size - w->used, format, arguments);
        w->used += length > 0 ? (size_t)length : 0;
    }
    va_end(arguments);
}

/* "rank 3", "ranks 0-2, 5": those of which `which` is `value`. */
static void put_ranks(words *w, const int *which, int value, int ranks)
{
    int count = 0, runs = 0;
    for (int r = 0; r < ranks; r++)
        count += which[r] == value;
    put(w, "rank%s ", count == 1 ? "" : "s");
    for (int r = 0; r < ranks; r++) {
        int first = r;
        if (which[r] != value)
            continue;
        while (r + 1 < ranks && which[r + 1] == value)
            r++;
        if (++runs > 8) {
            put(w, ", ...");
            return;
        }
        put(w, "%s%d", runs > 1 ? ", " : "", first);
        if (r > first)
            put(w, "%s%d", r > first + 1 ? "-" : ", ", r);
    }
}

/* Says which values a field has where. False: it is the same everywhere. */
static bool describe(const fo_train_fingerprint *all, int ranks, const char *line, int *which,
                     words *w)
{
    char value[LINE], known[VALUES][LINE];
    size_t name = strcspn(line, "\t\n");
    int values = 0;
    for (int r = 0; r < ranks; r++) {
        value_of(&all[r], line, name, value);
        which[r] = 0;
        while (which[r] < values && strcmp(known[which[r]], value) != 0)
            which[r]++;
        if (which[r] == values && values < VALUES)
            strcpy(known[values++], value);
    }
    if (values < 2)
        return false;
    put(w, "%.*s is ", (int)name - 1, line + 1);
    for (int i = 0; i < values; i++) {
        put(w, "%s%s on ",
            i == 0           ? ""
            : i + 1 < values ? ", "
                             : " and ",
            known[i][0] ? known[i] : "unknown");
        put_ranks(w, which, i, ranks);
    }
    for (int r = 0; r < ranks; r++)
        if (which[r] == VALUES) {
            put(w, ", others elsewhere");
            break;
        }
    return true;
}

static const char *advice_for(char kind)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (kinds[i].kind == kind)
            return kinds[i].advice;
    return NULL;
}

/* The first field that must not differ and does is refused; of those that may the first one is noted. */
static fo_status compare(const fo_train_fingerprint *all, int ranks, int *which, char *note,
                         size_t size)
{
    char sentence[SENTENCE];
    note[0] = '\0';
    for (const char *line = all[0].text; *line;
         line += strcspn(line, "\n"), line += *line == '\n') {
        words w = {.text = sentence, .size = sizeof sentence};
        const char *advice = advice_for(*line);
        if ((!advice && *note) || !describe(all, ranks, line, which, &w))
            continue;
        if (advice)
            return fo_base_error(FO_INVALID, "%s; %s", sentence, advice);
        snprintf(note, size, "%.400s; bits may differ from those of equal hosts", sentence);
    }
    return FO_OK;
}

/* ---- meeting ---------------------------------------------------------------------------------------- */

/* The first rank that can't go on says why; whose fault it is, unless it is everyone's. */
static fo_status first_refusal(const fo_group *group, const fo_train_fingerprint *all)
{
    int ranks = fo_group_size(group), first = 0, count = 0;
    while (first < ranks && all[first].status == FO_OK)
        first++;
    if (first == ranks)
        return FO_OK;
    for (int r = 0; r < ranks; r++)
        count += all[r].status != FO_OK;
    fo_status status = (fo_status)all[first].status;
    const char *host = fo_group_host(group, first);
    if (count == ranks)
        return fo_base_error(status, "%s", all[first].sentence);
    return fo_base_error(status, "rank %d%s%s%s: %s", first, *host ? " (host " : "", host,
                         *host ? ")" : "", all[first].sentence);
}

fo_status fo_train_enter(fo_group *group, const fo_train_fingerprint *given, char *note,
                         size_t size)
{
    int ranks = fo_group_size(group);
    fo_train_fingerprint *own = malloc(sizeof *own), *all = malloc((size_t)ranks * sizeof *all);
    int *which = malloc((size_t)ranks * sizeof *which);
    fo_status status = FO_OK;
    note[0] = '\0';
    if (!own || !all || !which) {
        status = fo_base_error(FO_NO_MEMORY, "no memory to compare %d ranks", ranks);
    } else {
        *own = *given;
        add_own(own, group);
        status = fo_group_allgather(group, own, sizeof *own, all);
    }
    bool met = status == FO_OK;
    if (status == FO_OK)
        status = first_refusal(group, all);
    if (status == FO_OK)
        status = compare(all, ranks, which, note, size);
    if (met)
        fo_train_together(group, status);
    free(own);
    free(all);
    free(which);
    return status;
}
