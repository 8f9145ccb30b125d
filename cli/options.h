/* Long options as a table: one row says name, type, target, range and help; parsing, the sentence
 * for what is wrong, and --help all follow from it. Nothing here exits or knows a command. */
#ifndef CLI_OPTIONS_H
#define CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "flashoverlap/group.h"

typedef enum cli_type {
    CLI_END,     /* ends the table */
    CLI_SECTION, /* a heading of the help; name only */
    CLI_FLAG,    /* bool, takes no value */
    CLI_TEXT,    /* const char * */
    CLI_WORD,    /* const char *, one of the words of `value`: "shm|self" */
    CLI_INT,     /* int, from low to high */
    CLI_INT64,   /* int64_t, from low to high */
    CLI_UINT64,  /* uint64_t, any */
    CLI_FLOAT,   /* float, from low to high */
    CLI_DOUBLE,  /* double, from low to high */
    CLI_DTYPE,   /* fo_dtype */
    CLI_LINK     /* cli_link */
} cli_type;

typedef struct cli_option {
    cli_type type;
    const char *name;  /* without the dashes */
    void *target;      /* holds the default; overwritten by what is given */
    const char *value; /* how the help names the value */
    const char *help;
    double low, high; /* numbers: what is accepted, ends included */
} cli_option;

/* What --link says. ratio > 0: the speed follows from a measurement, link.bytes_per_s is 0. */
typedef struct cli_link {
    fo_link link;
    double ratio;
} cli_link;

typedef struct cli_command {
    const char *name;     /* "train" */
    const char *about;    /* first lines of the help */
    const char *after;    /* last lines of the help; may be NULL */
    const char *operands; /* words of which exactly one must be given, "row|column"; NULL: none */
    const char **operand; /* where that word goes */
    const cli_option *options;
} cli_command;

typedef enum cli_outcome { CLI_GO, CLI_HELP, CLI_BAD } cli_outcome;

/* Reads argv[0..argc) (behind the verb) into the targets. CLI_BAD: `sentence` says what was found
 * and what was expected. CLI_HELP: --help was met. The last of repeated options counts. */
cli_outcome cli_options_parse(const cli_command *command, int argc, char **argv, char *sentence,
                              size_t size);

/* Prints the help, at most 80 columns, with the targets' values as defaults: call before parsing. */
void cli_options_help(const cli_command *command, FILE *out);

/* "off"; "2GB/s[,5us][,switch|mesh]"; "auto:0.56[,5us][,switch|mesh]". G is 1e9; B/s and bit/s with
 * K, M, G, T; s, ms, us, ns. False: not of that form, *link unchanged. */
bool cli_options_link(const char *text, cli_link *link);

/* The word of words[0..count) that is nearest to `word` in edit distance, NULL when none is near. */
const char *cli_options_nearest(const char *word, const char *const *words, int count);

#endif
