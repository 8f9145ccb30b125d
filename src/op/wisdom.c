/* Wisdom: lines of facts, where they lie, reading and writing them. */
#include "op/wisdom.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "flashoverlap/plan.h"
#include "flashoverlap/version.h"

#define FIRST_LINE "flashoverlap-wisdom 1"

enum { LINE = 512 };

/* ---- places ----------------------------------------------------------------------------------------- */

/* Cuts off at `size` bytes; false: it did not fit. */
static bool join(char *path, size_t size, const char *folder, const char *name)
{
    int length = snprintf(path, size, "%s%s", folder, name);
    if (length >= 0 && (size_t)length < size)
        return true;
    path[0] = '\0';
    return false;
}

/* With a '/' behind it; "": there is none. */
static void cache_folder(char folder[FO_OP_WISDOM_PATH])
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    folder[0] = '\0';
    if (cache && *cache == '/')
        join(folder, FO_OP_WISDOM_PATH, cache, "/flashoverlap/");
    else if (home && *home == '/')
        join(folder, FO_OP_WISDOM_PATH, home, "/.cache/flashoverlap/");
}

static const char *stated_profile(void)
{
    const char *stated = getenv("FLASHOVERLAP_PROFILE");
    return stated && *stated ? stated : NULL;
}

bool fo_plan_predicts(void)
{
    const char *asked = getenv("FLASHOVERLAP_PREDICT");
    return !asked || strcmp(asked, "0") != 0;
}

static void wisdom_folder(char folder[FO_OP_WISDOM_PATH])
{
    const char *stated = stated_profile(), *slash = stated ? strrchr(stated, '/') : NULL;
    if (!stated || strlen(stated) >= FO_OP_WISDOM_PATH) {
        cache_folder(folder);
        return;
    }
    snprintf(folder, FO_OP_WISDOM_PATH, "%.*s", slash ? (int)(slash + 1 - stated) : 2,
             slash ? stated : "./");
}

static uint64_t hash_of(const char *text)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (; *text; text++)
        hash = (hash ^ (unsigned char)*text) * 0x100000001b3u;
    return hash;
}

void fo_op_wisdom_profile_path(const char *machine, char path[FO_OP_WISDOM_PATH])
{
    char folder[FO_OP_WISDOM_PATH], name[64];
    if (stated_profile()) {
        join(path, FO_OP_WISDOM_PATH, stated_profile(), "");
        return;
    }
    cache_folder(folder);
    snprintf(name, sizeof name, "profile-%016" PRIx64 ".json", hash_of(machine));
    if (!folder[0] || !join(path, FO_OP_WISDOM_PATH, folder, name))
        path[0] = '\0';
}

void fo_op_wisdom_path(const char *machine, char path[FO_OP_WISDOM_PATH])
{
    char folder[FO_OP_WISDOM_PATH], name[64];
    wisdom_folder(folder);
    snprintf(name, sizeof name, "wisdom-%016" PRIx64 ".txt", hash_of(machine));
    if (!folder[0] || !join(path, FO_OP_WISDOM_PATH, folder, name))
        path[0] = '\0';
}

/* The name the processor gives itself. */
static void read_processor(char *text, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(text, size, "unknown processor");
    while (file && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(text, size, "%.*s", (int)strcspn(value, "\n"), value);
        break;
    }
    if (file)
        fclose(file);
    for (char *at = text; *at; at++)
        if (iscntrl((unsigned char)*at))
            *at = ' ';
}

void fo_op_wisdom_machine(const char *kernel, const char *isa, int threads, const char *transport,
                          char *machine, size_t size)
{
    char processor[128];
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN); /* of the machine: a rank may be bound to one */
    read_processor(processor, sizeof processor);
    snprintf(machine, size, "%s | %d core%s | %s %s | %d thread%s | %s | %s", processor, cores,
             cores == 1 ? "" : "s", kernel, isa, threads, threads == 1 ? "" : "s", transport,
             FO_VERSION);
}

/* ---- facts ------------------------------------------------------------------------------------------ */

static bool same(const fo_op_fact *a, const fo_op_fact *b)
{
    return !strcmp(a->what, b->what) && a->dtype == b->dtype && a->ranks == b->ranks &&
           a->rows == b->rows && a->k == b->k && a->n == b->n;
}

const fo_op_fact *fo_op_wisdom_find(const fo_op_wisdom *w, const fo_op_fact *like)
{
    for (int i = 0; i < w->count; i++)
        if (same(&w->facts[i], like))
            return &w->facts[i];
    return NULL;
}

void fo_op_wisdom_learn(fo_op_wisdom *w, const fo_op_fact *fact)
{
    for (int i = 0; i < w->count; i++)
        if (same(&w->facts[i], fact)) {
            w->facts[i] = *fact;
            return;
        }
    if (w->count < FO_OP_WISDOM_FACTS)
        w->facts[w->count++] = *fact;
}

/* ---- reading ---------------------------------------------------------------------------------------- */

static bool read_dtype(const char *word, fo_dtype *dtype)
{
    *dtype = strcmp(word, fo_dtype_name(FO_BF16)) ? FO_F32 : FO_BF16;
    return !strcmp(word, fo_dtype_name(*dtype));
}

static bool read_fact(const char *line, fo_op_fact *fact)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789_:.-";
    char dtype[8];
    int end = -1;
    *fact = (fo_op_fact){0};
    int read =
        sscanf(line, "%39s %7s ranks %d rows %" SCNd64 " k %" SCNd64 " n %" SCNd64 " is %lf%n",
               fact->what, dtype, &fact->ranks, &fact->rows, &fact->k, &fact->n, &fact->value,
               &end);
    return read == 7 && end >= 0 && !line[end] && read_dtype(dtype, &fact->dtype) &&
           !fact->what[strspn(fact->what, letters)] && fact->ranks >= 1 && fact->rows >= 0 &&
           fact->k >= 0 && fact->n >= 0 && fact->value >= 0 &&
           fact->value <= 1e15; /* seconds, or bytes a second */
}

/* A line without its end; false: there is none, "", or it has none or is too long. */
static bool next_line(FILE *file, char line[LINE])
{
    line[0] = '\0';
    if (!fgets(line, LINE, file))
        return false;
    size_t length = strlen(line);
    if (!length || line[length - 1] != '\n')
        return false;
    line[length - 1] = '\0';
    return true;
}

static bool read_head(fo_op_wisdom *w, FILE *file)
{
    char line[LINE];
    if (!next_line(file, line) || strcmp(line, FIRST_LINE) != 0) {
        snprintf(w->note, sizeof w->note, "wisdom of another version was not used (%.180s)",
                 w->path);
        return false;
    }
    if (!next_line(file, line) || strncmp(line, "machine ", 8) != 0 ||
        strcmp(line + 8, w->machine) != 0) {
        snprintf(w->note, sizeof w->note, "wisdom of another machine was not used (%.180s)",
                 w->path);
        return false;
    }
    return true;
}

void fo_op_wisdom_read(fo_op_wisdom *w, const char *machine)
{
    w->count = 0;
    w->note[0] = '\0';
    snprintf(w->machine, sizeof w->machine, "%s", machine);
    fo_op_wisdom_path(machine, w->path);
    FILE *file = w->path[0] ? fopen(w->path, "r") : NULL;
    if (!file)
        return;
    bool fine = read_head(w, file);
    char line[LINE] = "";
    for (int number = 3; fine && next_line(file, line); number++) {
        fo_op_fact fact;
        fine = read_fact(line, &fact);
        if (fine)
            fo_op_wisdom_learn(w, &fact);
        else
            snprintf(w->note, sizeof w->note, "wisdom was not used: line %d of %.140s is '%.40s'",
                     number, w->path, line);
    }
    if (fine && line[0]) {
        fine = false;
        snprintf(w->note, sizeof w->note, "wisdom was not used: its last line is cut off (%.160s)",
                 w->path);
    }
    if (!fine)
        w->count = 0;
    fclose(file);
}

/* ---- writing ---------------------------------------------------------------------------------------- */

void fo_op_wisdom_make_folders(const char *path)
{
    char folder[FO_OP_WISDOM_PATH];
    snprintf(folder, sizeof folder, "%s", path);
    for (char *at = folder + 1; (at = strchr(at, '/')); at++) {
        *at = '\0';
        (void)mkdir(folder, 0777); /* there already, or opening the file will say why not */
        *at = '/';
    }
}

static void put_facts(const fo_op_wisdom *w, FILE *file)
{
    fprintf(file, "%s\nmachine %s\n", FIRST_LINE, w->machine);
    for (int i = 0; i < w->count; i++) {
        const fo_op_fact *f = &w->facts[i];
        if (f->unsteady)
            continue;
        fprintf(file, "%s %s ranks %d rows %" PRId64 " k %" PRId64 " n %" PRId64 " is %.6g\n",
                f->what, fo_dtype_name(f->dtype), f->ranks, f->rows, f->k, f->n, f->value);
    }
}

/* What another process has learnt meanwhile; what both know is as the file has it. */
static void join_others(fo_op_wisdom *w)
{
    fo_op_wisdom *others = malloc(sizeof *others);
    if (!others)
        return;
    fo_op_wisdom_read(others, w->machine);
    for (int i = 0; i < others->count; i++)
        if (!fo_op_wisdom_find(w, &others->facts[i]))
            fo_op_wisdom_learn(w, &others->facts[i]);
    free(others);
}

void fo_op_wisdom_keep(fo_op_wisdom *w)
{
    char beside[FO_OP_WISDOM_PATH + 32];
    if (!w->path[0])
        return;
    fo_op_wisdom_make_folders(w->path);
    join_others(w);
    snprintf(beside, sizeof beside, "%s.%ld", w->path, (long)getpid());
    FILE *file = fopen(beside, "w");
    if (file)
        put_facts(w, file);
    bool written = file && !ferror(file);
    written = file && fclose(file) == 0 && written;
    if (written && rename(beside, w->path) == 0)
        return;
    snprintf(w->note, sizeof w->note, "wisdom could not be kept in %.150s (%s)", w->path,
             strerror(errno));
    if (file)
        unlink(beside);
}

/* ---- forgetting ------------------------------------------------------------------------------------- */

static bool is_named(const char *name, const char *begin, const char *end)
{
    size_t length = strlen(begin) + 16 + strlen(end);
    return strlen(name) == length && !strncmp(name, begin, strlen(begin)) &&
           !strcmp(name + length - strlen(end), end);
}

static int forget_in(const char *folder, bool profiles)
{
    int gone = 0;
    DIR *open = folder[0] ? opendir(folder) : NULL;
    const struct dirent *entry;
    while (open && (entry = readdir(open))) {
        char path[FO_OP_WISDOM_PATH];
        bool ours = is_named(entry->d_name, "wisdom-", ".txt") ||
                    (profiles && is_named(entry->d_name, "profile-", ".json"));
        if (ours && join(path, sizeof path, folder, entry->d_name))
            gone += unlink(path) == 0;
    }
    if (open)
        closedir(open);
    return gone;
}

int fo_op_wisdom_forget(void)
{
    char cache[FO_OP_WISDOM_PATH], beside[FO_OP_WISDOM_PATH];
    cache_folder(cache);
    wisdom_folder(beside);
    int gone = forget_in(cache, true);
    return strcmp(cache, beside) ? gone + forget_in(beside, false)
                                 : gone; /* a stated profile is the user's */
}
