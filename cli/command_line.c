#include "command_line.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Writes the word behind `at`, returns where it ends. */
static char *put_word(char *at, const char *word)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                "-_.,:/=+@%";
    if (*word && strspn(word, plain) == strlen(word))
        return at + sprintf(at, " %s", word);
    at += sprintf(at, " '");
    for (; *word; word++)
        at += sprintf(at, *word == '\'' ? "'\\'%c" : "%c", *word);
    return at + sprintf(at, "'");
}

char *cli_command_line(const char *verb, int argc, char **argv)
{
    static const char program[] = "flashoverlap ";
    size_t size = sizeof program + strlen(verb);
    for (int i = 0; i < argc; i++) /* a quote becomes four letters; a space and two quotes around */
        size += 4 * strlen(argv[i]) + 3;
    char *line = malloc(size), *at = line;
    if (!line)
        return NULL;
    at += sprintf(at, "%s%s", program, verb);
    for (int i = 0; i < argc; i++)
        at = put_word(at, argv[i]);
    return line;
}
