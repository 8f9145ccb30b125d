#include "profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "flashoverlap/calibrate.h"

static bool is_path(const char *word)
{
    size_t length = strlen(word);
    return strchr(word, '/') || (length > 5 && !strcmp(word + length - 5, ".json"));
}

/* Without a slash or the ending of JSON the library takes a word for the name of a machine: a file of such a name is
 * given to it as "./name". */
bool cli_profile(const char *verb, const char *path, int *code)
{
    if (!is_path(path) && access(path, F_OK) != 0) {
        *code =
            cli_usage(verb,
                      "--profile is '%s', expected a file that `flashoverlap calibrate --out FILE` "
                      "wrote on this machine; names of machines go with simulate and plan",
                      path);
        return false;
    }
    size_t size = strlen(path) + sizeof "./";
    char *file = malloc(size);
    if (file)
        snprintf(file, size, "%s%s", strchr(path, '/') ? "" : "./", path);
    fo_status status = file ? fo_profile_use(file) : FO_NO_MEMORY;
    free(file);
    *code = cli_end(verb, status);
    return status == FO_OK;
}
