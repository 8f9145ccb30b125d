/* Profiles by name or from a file. The shipped ones are part of the library (cmake/profiles.cmake). */
#include "sim/profile.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/file.h"
#include "sim/shipped.h"

enum { BYTES_MOST = 16 << 20 };

static bool is_file(const char *word)
{
    size_t length = strlen(word);
    return strchr(word, '/') || (length > 5 && !strcmp(word + length - 5, ".json"));
}

const char *fo_sim_profile_text(const char *name)
{
    for (int i = 0; fo_sim_shipped_names[i]; i++)
        if (!strcmp(fo_sim_shipped_names[i], name))
            return fo_sim_shipped_texts[i];
    return NULL;
}

const char *const *fo_sim_profile_names(void)
{
    return fo_sim_shipped_names;
}

static fo_status unknown(const char *word)
{
    char names[600] = "";
    size_t used = 0;
    for (int i = 0; fo_sim_shipped_names[i] && used < sizeof names; i++)
        used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
                                 fo_sim_shipped_names[i]);
    return fo_base_error(FO_INVALID,
                         "machine '%.100s' is unknown, expected one of %s, or the path of a file "
                         "that ends in .json",
                         word, names);
}

static fo_status read_file(const char *path, fo_sim_machine *machine)
{
    char *text;
    size_t bytes;
    fo_status status =
        fo_base_file_read("profile", path, BYTES_MOST,
                          "a JSON file as `flashoverlap calibrate --out` writes it", &text, &bytes);
    if (status == FO_OK)
        status = fo_sim_profile_parse(path, text, bytes, machine);
    free(text);
    return status;
}

fo_status fo_sim_profile_read(const char *word, fo_sim_machine *machine)
{
    memset(machine, 0, sizeof *machine);
    if (is_file(word))
        return read_file(word, machine);
    const char *text = fo_sim_profile_text(word);
    return text ? fo_sim_profile_parse(word, text, strlen(text), machine) : unknown(word);
}
