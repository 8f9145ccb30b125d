/* Parsing and help of long options. */
#include "options.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { WORD = 64, NAMES = 96, HALF = 40, NAME_WIDTH = 17, OPERANDS_WIDTH = 44, FAR = 1 << 20 };

/* ---- words ----------------------------------------------------------------------------------- */

static int min3(int a, int b, int c)
{
    int least = a < b ? a : b;
    return least < c ? least : c;
}

/* Changed, missing, additional and swapped letters that make b of a; FAR when over WORD letters. */
static int distance(const char *a, const char *b)
{
    int before[WORD + 1] = {0}, previous[WORD + 1], current[WORD + 1];
    int length = (int)strlen(b);
    if (length > WORD || strlen(a) > WORD)
        return FAR;
    for (int j = 0; j <= length; j++)
        previous[j] = j;
    for (int i = 1; a[i - 1]; i++) {
        current[0] = i;
        for (int j = 1; j <= length; j++) {
            current[j] =
                min3(previous[j] + 1, current[j - 1] + 1, previous[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                current[j] = min3(current[j], before[j - 2] + 1, FAR);
        }
        memcpy(before, previous, ((size_t)length + 1) * sizeof *before);
        memcpy(previous, current, ((size_t)length + 1) * sizeof *current);
    }
    return previous[length];
}

const char *cli_options_nearest(const char *word, const char *const *words, int count)
{
    const char *nearest = NULL;
    int least = ((int)strlen(word) + 1) / 3; /* more than that wrong is no misspelling */
    for (int i = 0; i < count; i++) {
        int found = distance(word, words[i]);
        bool begins = strlen(word) >= 3 && !strncmp(word, words[i], strlen(word));
        if (begins)
            found = 1;
        if (found <= least && (!nearest || found < least)) {
            nearest = words[i];
            least = found;
        }
    }
    return nearest;
}

/* Whether `word` is one of "a|b|c". */
static bool one_of(const char *word, const char *list)
{
    size_t length = strlen(word);
    for (const char *at = list; *at; at += strcspn(at, "|"), at += *at == '|')
        if (strcspn(at, "|") == length && !strncmp(at, word, length))
            return true;
    return false;
}

/* "a|b|c" as "a, b or c". */
static const char *spoken(const char *list, char *text, size_t size)
{
    size_t used = 0;
    text[0] = '\0';
    for (const char *at = list; *at && used < size;) {
        size_t length = strcspn(at, "|");
        bool last = !at[length];
        const char *link = at == list ? "" : last ? " or " : ", ";
        used += (size_t)snprintf(text + used, size - used, "%s%.*s", link, (int)length, at);
        at += length + !last;
    }
    return text;
}

/* ---- numbers --------------------------------------------------------------------------------- */

static bool whole_number(const char *text, int64_t *number)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || errno || isspace((unsigned char)*text))
        return false;
    *number = value;
    return true;
}

static bool unsigned_number(const char *text, uint64_t *number)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)*text) || *end || errno)
        return false;
    *number = value;
    return true;
}

static bool real_number(const char *text, double *number)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || isspace((unsigned char)*text) || !isfinite(value))
        return false;
    *number = value;
    return true;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* A positive or zero number with a unit behind it, of those listed; false: anything else. */
static bool with_unit(const char *text, const char *const *units, const double *factors, int count,
                      double *number)
{
    char *end;
    double value = strtod(text, &end);
    if (!isdigit((unsigned char)*text) || end == text || !isfinite(value))
        return false;
    for (int i = 0; i < count; i++)
        if (!strcasecmp(end, units[i])) {
            *number = value * factors[i];
            return true;
        }
    return false;
}

static bool link_speed(const char *text, cli_link *link)
{
    static const char *const units[] = {"B/s",   "KB/s",   "MB/s",   "GB/s",   "TB/s",
                                        "bit/s", "Kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    static const double factors[] = {1,     1e3,     1e6,     1e9,     1e12,
                                     0.125, 0.125e3, 0.125e6, 0.125e9, 0.125e12};
    if (!strncmp(text, "auto:", 5))
        return isdigit((unsigned char)text[5]) && real_number(text + 5, &link->ratio) &&
               link->ratio >= 1e-6 && link->ratio <= 1000;
    return with_unit(text, units, factors, 10, &link->link.bytes_per_s) &&
           link->link.bytes_per_s >= 1 && link->link.bytes_per_s <= 1e18;
}

static bool link_detail(const char *text, cli_link *link)
{
    static const char *const units[] = {"s", "ms", "us", "ns"};
    static const double factors[] = {1, 1e-3, 1e-6, 1e-9};
    bool mesh = !strcmp(text, "mesh");
    if (mesh || !strcmp(text, "switch")) {
        link->link.topology = mesh ? FO_MESH : FO_SWITCH;
        return true;
    }
    return with_unit(text, units, factors, 4, &link->link.latency_s) && link->link.latency_s <= 60;
}

bool cli_options_link(const char *text, cli_link *link)
{
    cli_link read = {0};
    char copy[96];
    if (strlen(text) >= sizeof copy)
        return false;
    if (!strcmp(text, "off")) {
        *link = read;
        return true;
    }
    strcpy(copy, text);
    char *rest = copy;
    bool fine = link_speed(strsep(&rest, ","), &read);
    while (fine && rest)
        fine = link_detail(strsep(&rest, ","), &read);
    if (fine)
        *link = read;
    return fine;
}

/* ---- parsing --------------------------------------------------------------------------------- */

/* Where and how to complain. */
typedef struct complaint {
    char *text;
    size_t size;
} complaint;

static cli_outcome bad(complaint c, const char *format, ...) __attribute__((format(printf, 2, 3)));
static cli_outcome bad(complaint c, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(c.text, c.size, format, arguments);
    va_end(arguments);
    return CLI_BAD;
}

static bool is_number(cli_type type)
{
    return type == CLI_INT || type == CLI_INT64 || type == CLI_FLOAT || type == CLI_DOUBLE;
}

static cli_outcome bad_number(complaint c, const cli_option *option, const char *given)
{
    const char *kind =
        option->type == CLI_INT || option->type == CLI_INT64 ? "whole number" : "number";
    return bad(c, "--%s is '%s', expected a %s from %.15g to %.15g", option->name, given, kind,
               option->low, option->high);
}

static cli_outcome set_number(complaint c, const cli_option *option, const char *given)
{
    int64_t whole = 0;
    double real = 0;
    bool integer = option->type == CLI_INT || option->type == CLI_INT64;
    if (integer ? !whole_number(given, &whole) : !real_number(given, &real))
        return bad_number(c, option, given);
    double value = integer ? (double)whole : real;
    if (value < option->low || value > option->high)
        return bad_number(c, option, given);
    switch (option->type) {
    case CLI_INT: *(int *)option->target = (int)whole; break;
    case CLI_INT64: *(int64_t *)option->target = whole; break;
    case CLI_FLOAT: *(float *)option->target = (float)real; break;
    default: *(double *)option->target = real; break;
    }
    return CLI_GO;
}

static cli_outcome set_value(complaint c, const cli_option *option, const char *given)
{
    char words[256];
    switch (option->type) {
    case CLI_TEXT: *(const char **)option->target = given; return CLI_GO;
    case CLI_WORD:
        if (!one_of(given, option->value))
            return bad(c, "--%s is '%s', expected %s", option->name, given,
                       spoken(option->value, words, sizeof words));
        *(const char **)option->target = given;
        return CLI_GO;
    case CLI_UINT64:
        if (!unsigned_number(given, option->target))
            return bad(c, "--%s is '%s', expected a whole number from 0 to %" PRIu64, option->name,
                       given, UINT64_MAX);
        return CLI_GO;
    case CLI_DTYPE:
        if (!one_of(given, "f32|bf16"))
            return bad(c, "--%s is '%s', expected f32 or bf16", option->name, given);
        *(fo_dtype *)option->target = strcmp(given, "bf16") ? FO_F32 : FO_BF16;
        return CLI_GO;
    case CLI_LINK:
        if (!cli_options_link(given, option->target))
            return bad(c,
                       "--%s is '%s', expected a speed, or auto: and the part of the computation a "
                       "transfer takes, then a latency and switch or mesh if wanted, such as "
                       "2GB/s,5us or auto:0.56,5us,mesh; or off",
                       option->name, given);
        return CLI_GO;
    default: return set_number(c, option, given);
    }
}

static const cli_option *find_option(const cli_option *options, const char *name, size_t length)
{
    for (; options->type != CLI_END; options++)
        if (options->type != CLI_SECTION && strlen(options->name) == length &&
            !strncmp(options->name, name, length))
            return options;
    return NULL;
}

static cli_outcome unknown_option(complaint c, const cli_command *command, const char *given)
{
    const char *names[NAMES] = {"help"};
    int count = 1;
    char word[WORD];
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given, "="), given);
    for (const cli_option *o = command->options; o->type != CLI_END && count < NAMES; o++)
        if (o->type != CLI_SECTION)
            names[count++] = o->name;
    const char *nearest = cli_options_nearest(word + strspn(word, "-"), names, count);
    if (nearest)
        return bad(c, "unknown option %s, did you mean --%s?", word, nearest);
    return bad(c, "unknown option %s, 'flashoverlap %s --help' lists those known", word,
               command->name);
}

/* One option at argv[*at]; *at is moved to the last word used. */
static cli_outcome take_option(complaint c, const cli_command *command, int argc, char **argv,
                               int *at)
{
    const char *name = argv[*at] + 2, *given = strchr(name, '=');
    size_t length = given ? (size_t)(given - name) : strlen(name);
    const cli_option *option = find_option(command->options, name, length);
    if (!option)
        return unknown_option(c, command, argv[*at]);
    if (option->type == CLI_FLAG) {
        if (given)
            return bad(c, "--%s takes no value, found '%s'", option->name, given + 1);
        *(bool *)option->target = true;
        return CLI_GO;
    }
    if (given)
        return set_value(c, option, given + 1);
    if (*at + 1 == argc)
        return bad(c, "--%s is the last word, expected a value behind it: --%s %s", option->name,
                   option->name, option->value);
    return set_value(c, option, argv[++*at]);
}

static cli_outcome take_operand(complaint c, const cli_command *command, const char *word)
{
    char words[256];
    if (!command->operands)
        return bad(c, "'%s' is not an option; options begin with --", word);
    if (*command->operand)
        return bad(c, "'%s' comes after '%s', expected only one of %s", word, *command->operand,
                   spoken(command->operands, words, sizeof words));
    if (!one_of(word, command->operands))
        return bad(c, "'%s' is unknown, expected %s", word,
                   spoken(command->operands, words, sizeof words));
    *command->operand = word;
    return CLI_GO;
}

cli_outcome cli_options_parse(const cli_command *command, int argc, char **argv, char *sentence,
                              size_t size)
{
    complaint c = {sentence, size};
    char words[256];
    for (int at = 0; at < argc; at++) {
        cli_outcome outcome;
        if (!strcmp(argv[at], "--help") || !strcmp(argv[at], "-h"))
            return CLI_HELP;
        if (!strncmp(argv[at], "--", 2))
            outcome = take_option(c, command, argc, argv, &at);
        else if (argv[at][0] == '-')
            outcome = unknown_option(c, command, argv[at]);
        else
            outcome = take_operand(c, command, argv[at]);
        if (outcome != CLI_GO)
            return outcome;
    }
    if (command->operands && !*command->operand)
        return bad(c, "nothing to work on was named, expected %s",
                   spoken(command->operands, words, sizeof words));
    return CLI_GO;
}

/* ---- help ------------------------------------------------------------------------------------ */

/* The default as people would type it, "" when there is none worth saying. */
static const char *default_of(const cli_option *option, char *text, size_t size)
{
    text[0] = '\0';
    const char *word;
    switch (option->type) {
    case CLI_TEXT:
    case CLI_WORD:
        word = *(const char **)option->target;
        snprintf(text, size, "%s", word ? word : "");
        break;
    case CLI_INT: snprintf(text, size, "%d", *(int *)option->target); break;
    case CLI_INT64: snprintf(text, size, "%" PRId64, *(int64_t *)option->target); break;
    case CLI_UINT64: snprintf(text, size, "%" PRIu64, *(uint64_t *)option->target); break;
    case CLI_FLOAT: snprintf(text, size, "%.6g", (double)*(float *)option->target); break;
    case CLI_DOUBLE: snprintf(text, size, "%g", *(double *)option->target); break;
    case CLI_DTYPE: snprintf(text, size, "%s", fo_dtype_name(*(fo_dtype *)option->target)); break;
    default: break;
    }
    return text;
}

/* "  --name VALUE   help [default]" */
static void entry(const cli_option *option, char *text, size_t size)
{
    char name[64], given[64];
    snprintf(name, sizeof name, "--%s%s%s", option->name, option->value ? " " : "",
             option->value ? option->value : "");
    default_of(option, given, sizeof given);
    bool special = is_number(option->type) && (given[0] == '-' || !strcmp(given, "0"));
    bool known = given[0] && !special; /* special values are explained by the text */
    snprintf(text, size, "  %-*s %s%s%s%s", NAME_WIDTH, name, option->help, known ? " [" : "",
             known ? given : "", known ? "]" : "");
}

void cli_options_help(const cli_command *command, FILE *out)
{
    char left[160], right[160];
    const char *what = command->operands ? command->operands : "";
    bool wide = strlen(what) > OPERANDS_WIDTH;
    fprintf(out, "Usage: flashoverlap %s %s%s[options]\n%s%s%s%s\n", command->name,
            wide ? "WHAT" : what, *what ? " " : "", wide ? "WHAT is " : "", wide ? what : "",
            wide ? "\n" : "", command->about);
    for (const cli_option *o = command->options; o->type != CLI_END; o++) {
        if (o->type == CLI_SECTION) {
            fprintf(out, "%s\n", o->name);
            continue;
        }
        entry(o, left, sizeof left);
        bool pair = strlen(left) < HALF && o[1].type != CLI_END && o[1].type != CLI_SECTION;
        if (pair) {
            entry(o + 1, right, sizeof right);
            pair = strlen(right) <= HALF;
        }
        if (pair) {
            fprintf(out, "%-*s%s\n", HALF, left, right);
            o++;
        } else {
            fprintf(out, "%s\n", left);
        }
    }
    if (command->after)
        fprintf(out, "%s\n", command->after);
}
