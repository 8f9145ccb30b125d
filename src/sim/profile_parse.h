/* How a profile's text is read; shared by the files profile*.c only. */
#ifndef FO_SIM_PROFILE_PARSE_H
#define FO_SIM_PROFILE_PARSE_H

#include <jansson.h>
#include <stddef.h>

#include "flashoverlap/status.h"
#include "sim/machine.h"

enum { FO_SIM_PROFILE_PATH = 160 }; /* bytes of "device.launch_s.value" */

typedef struct fo_sim_profile_reader {
    const char *name; /* of the file, for messages */
    fo_sim_machine *machine;
} fo_sim_profile_reader;

/* ---- fields with a source (profile_fields.c) ---- */

typedef enum fo_sim_profile_kind {
    FO_SIM_PROFILE_NUMBER,  /* double */
    FO_SIM_PROFILE_RATE,    /* double, or 0: takes no time */
    FO_SIM_PROFILE_WHOLE,   /* int */
    FO_SIM_PROFILE_WHOLE64, /* int64_t */
    FO_SIM_PROFILE_FLAG,    /* bool */
    FO_SIM_PROFILE_TOPOLOGY,
    FO_SIM_PROFILE_CURVE, /* pairs, the second of each a part of one */
    FO_SIM_PROFILE_SIZES  /* of a torus */
} fo_sim_profile_kind;

typedef struct fo_sim_profile_field {
    const char *name;
    fo_sim_profile_kind kind;
    size_t offset; /* in fo_sim_machine */
    double least, most;
    bool positive; /* more than `least` */
    bool required;
    const char *example; /* of its value, as JSON */
} fo_sim_profile_field;

typedef struct fo_sim_profile_section {
    const char *path;
    const fo_sim_profile_field *fields;
    int count;
    const char *inner; /* name of a section inside; NULL: none */
} fo_sim_profile_section;

extern const fo_sim_profile_section fo_sim_profile_device, fo_sim_profile_network,
    fo_sim_profile_outer, fo_sim_profile_software;

/* Reads {"value": ..., "source": ..., "confidence": ...} into its place. `path`: of the object. */
fo_status fo_sim_profile_field_read(const fo_sim_profile_reader *reader,
                                    const fo_sim_profile_field *field, const char *path,
                                    const json_t *object);

/* ---- rows of plain values: the lists that were measured (profile_rows.c) ---- */

typedef enum fo_sim_profile_key_kind {
    FO_SIM_PROFILE_KEY_WHOLE,
    FO_SIM_PROFILE_KEY_NUMBER,
    FO_SIM_PROFILE_KEY_LOOSE, /* a number, or null where there was none */
    FO_SIM_PROFILE_KEY_WORD,  /* one of `words`; its value is the place in them */
    FO_SIM_PROFILE_KEY_TEXT,
    FO_SIM_PROFILE_KEY_FLAG
} fo_sim_profile_key_kind;

typedef struct fo_sim_profile_key {
    const char *name;
    fo_sim_profile_key_kind kind;
    bool required;
    double least, most;
    const char *const *words; /* NULL after the last */
    const char *example;
} fo_sim_profile_key;

/* Reads an object that has these keys and no others; values[count]: NaN where a value is not there. */
fo_status fo_sim_profile_row_read(const fo_sim_profile_reader *reader, const char *path,
                                  const json_t *object, const fo_sim_profile_key *keys, int count,
                                  double *values);
fo_status fo_sim_profile_is_list(const fo_sim_profile_reader *reader, const char *path,
                                 const json_t *value);

/* ---- measured (profile_measured.c) ---- */
/* Appends the entries of a list, "gemm", "wgrad", "attention" or "attention_grad". */
fo_status fo_sim_profile_entries(const fo_sim_profile_reader *reader, const char *name,
                                 const json_t *list);
/* A whole profile of version 1. */
fo_status fo_sim_profile_measured(const fo_sim_profile_reader *reader, const json_t *root);

/* ---- errors (profile_error.c) ---- */
/* "FILE: PATH is FOUND, expected EXPECTED, such as EXAMPLE". found NULL: "is missing". Returns FO_INVALID. */
fo_status fo_sim_profile_wrong(const fo_sim_profile_reader *reader, const char *path,
                               const json_t *found, const char *expected, const char *example);
/* A field that is in no list. `known`: those there are, separated by commas. */
fo_status fo_sim_profile_unknown(const fo_sim_profile_reader *reader, const char *path,
                                 const char *known, const char *example);
/* No JSON at all, or a key twice: names the path of the place. */
fo_status fo_sim_profile_syntax(const fo_sim_profile_reader *reader, const char *text, size_t bytes,
                                const json_error_t *error);

#endif
