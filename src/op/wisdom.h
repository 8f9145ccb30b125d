/* Wisdom: what was measured on this machine for the exact shapes that plans have, kept from run to run. A file of
 * lines in the folder of the machine profile (fo_op_wisdom_path), read by rank 0 alone.
 *
 *     flashoverlap-wisdom 1
 *     machine AMD EPYC | 2 cores | onednn avx512_core | 1 thread | shm | 0.1.0
 *     gemm:partial:f32 f32 ranks 2 rows 64 k 1024 n 2048 is 0.00123
 *
 * A file of another version or machine, or one with a line that is none of these, is not used, and fo_op_wisdom_note
 * says why. */
#ifndef FO_OP_WISDOM_H
#define FO_OP_WISDOM_H

#include "flashoverlap/group.h"

enum { FO_OP_WISDOM_PATH = 1024, FO_OP_WISDOM_FACTS = 512 };

typedef struct fo_op_fact {
    char what[40]; /* "gemm:gelu:bf16": letters, digits and any of "_:.-" */
    fo_dtype dtype;
    int ranks; /* that did it at the same time on this machine */
    int64_t rows, k, n;
    double value; /* seconds */
    bool
        unsteady; /* samples differed much, as on a machine that does other things too: not kept in a file */
} fo_op_fact;

/* Where the profile and the wisdom of a machine lie: beside the file that FLASHOVERLAP_PROFILE names, else in
 * $XDG_CACHE_HOME/flashoverlap or ~/.cache/flashoverlap. "": there is no such place. */
void fo_op_wisdom_profile_path(const char *machine, char path[FO_OP_WISDOM_PATH]);
void fo_op_wisdom_path(const char *machine, char path[FO_OP_WISDOM_PATH]);
/* What they are for: processor, cores, kernel, threads of a rank, transport, version. */
void fo_op_wisdom_machine(const char *kernel, const char *isa, int threads, const char *transport,
                          char *machine, size_t size);

/* What is known, of one machine. Belongs to one thread. */
typedef struct fo_op_wisdom {
    char machine[256], path[FO_OP_WISDOM_PATH];
    char note[256]; /* why the file was not used, or could not be kept; "" */
    int count;
    fo_op_fact facts[FO_OP_WISDOM_FACTS];
} fo_op_wisdom;

/* Reads the file there may be. */
void fo_op_wisdom_read(fo_op_wisdom *wisdom, const char *machine);
/* NULL: it is not known. The value of `like` is not looked at. */
const fo_op_fact *fo_op_wisdom_find(const fo_op_wisdom *wisdom, const fo_op_fact *like);
/* Adds, or replaces. Does nothing when there is no room. */
void fo_op_wisdom_learn(fo_op_wisdom *wisdom, const fo_op_fact *fact);
/* Writes the file, with what others have learnt since it was read; complete or as it was. What goes wrong is a
 * note: what is known serves this run all the same. */
void fo_op_wisdom_keep(fo_op_wisdom *wisdom);
/* The folders on the way to a file, as far as they are missing. */
void fo_op_wisdom_make_folders(const char *path);
/* Removes profiles and wisdom of all machines from the folder; returns how many files. */
int fo_op_wisdom_forget(void);

#endif
