/* The option parser alone: numbers, words, links, misspellings, help. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "options.h"

enum { MOST_WORDS = 16 };

typedef struct targets {
    int ranks;
    int64_t rows;
    uint64_t seed;
    float lr;
    double deadline;
    bool json;
    const char *data, *format, *which;
    fo_dtype dtype;
    cli_link link;
    char sentence[512];
    cli_option options[12];
    cli_command command;
} targets;

static void prepare(targets *t)
{
    *t = (targets){.ranks = 2, .rows = 100, .seed = 7, .lr = 0.5f, .format = "bytes"};
    const cli_option options[] = {
        {.type = CLI_SECTION, .name = "group"},
        {CLI_INT, "ranks", &t->ranks, "N", "ranks", 1, 4096},
        {CLI_INT64, "rows", &t->rows, "N", "rows", 0, 1e12},
        {CLI_UINT64, "seed", &t->seed, "N", "seed", 0, 0},
        {CLI_FLOAT, "lr", &t->lr, "X", "rate", 0, 1},
        {CLI_DOUBLE, "deadline", &t->deadline, "S", "wait", 0, 1e9},
        {CLI_FLAG, "json", &t->json, NULL, "as JSON", 0, 0},
        {CLI_TEXT, "data", &t->data, "FILE", "text", 0, 0},
        {CLI_WORD, "format", &t->format, "bytes|char", "format", 0, 0},
        {CLI_DTYPE, "dtype", &t->dtype, "f32|bf16", "type", 0, 0},
        {CLI_LINK, "link", &t->link, "LINK", "link", 0, 0},
        {.type = CLI_END},
    };
    memcpy(t->options, options, sizeof options);
    t->command = (cli_command){.name = "bench",
                               .about = "Measures.",
                               .operands = "row|column",
                               .operand = &t->which,
                               .options = t->options};
}

/* Parses the words of `line`, separated by spaces. The words are kept until the next call. */
static cli_outcome parse(targets *t, const char *line)
{
    static char copy[256];
    char *words[MOST_WORDS], *rest = copy;
    int count = 0;
    prepare(t);
    strncpy(copy, line, sizeof copy - 1);
    while (rest && *rest && count < MOST_WORDS)
        words[count++] = strsep(&rest, " ");
    return cli_options_parse(&t->command, count, words, t->sentence, sizeof t->sentence);
}

static void test_values(void **state)
{
    (void)state;
    targets t;
    assert_int_equal(parse(&t, "row --ranks 3 --rows=12 --lr 1e-3 --json --data - --dtype bf16"),
                     CLI_GO);
    assert_int_equal(t.ranks, 3);
    assert_int_equal(t.rows, 12);
    assert_true(t.lr == 1e-3f);
    assert_true(t.json);
    assert_string_equal(t.data, "-");
    assert_int_equal(t.dtype, FO_BF16);
    assert_string_equal(t.which, "row");
    assert_int_equal(t.seed, 7);

    assert_int_equal(parse(&t, "--seed 18446744073709551615 column --deadline 2.5 --format char"),
                     CLI_GO);
    assert_true(t.seed == UINT64_MAX);
    assert_true(t.deadline == 2.5);
    assert_string_equal(t.format, "char");
    assert_string_equal(t.which, "column");

    assert_int_equal(parse(&t, "row --ranks 3 --ranks 4"), CLI_GO);
    assert_int_equal(t.ranks, 4);
    assert_int_equal(parse(&t, "row --data= "), CLI_GO);
    assert_string_equal(t.data, "");
}

static void test_sentences(void **state)
{
    (void)state;
    static const struct {
        const char *line, *sentence;
    } cases[] = {
        {"row --ranks two", "--ranks is 'two', expected a whole number from 1 to 4096"},
        {"row --ranks 0", "--ranks is '0', expected a whole number from 1 to 4096"},
        {"row --ranks 4097", "--ranks is '4097', expected a whole number from 1 to 4096"},
        {"row --ranks 3x", "--ranks is '3x', expected a whole number from 1 to 4096"},
        {"row --ranks 2.0", "--ranks is '2.0', expected a whole number from 1 to 4096"},
        {"row --ranks=", "--ranks is '', expected a whole number from 1 to 4096"},
        {"row --ranks 99999999999999999999",
         "--ranks is '99999999999999999999', expected a whole number from 1 to 4096"},
        {"row --rows -1", "--rows is '-1', expected a whole number from 0 to 1000000000000"},
        {"row --lr nan", "--lr is 'nan', expected a number from 0 to 1"},
        {"row --lr inf", "--lr is 'inf', expected a number from 0 to 1"},
        {"row --lr 1.5", "--lr is '1.5', expected a number from 0 to 1"},
        {"row --seed -1", "--seed is '-1', expected a whole number from 0 to 18446744073709551615"},
        {"row --dtype f16", "--dtype is 'f16', expected f32 or bf16"},
        {"row --format byte", "--format is 'byte', expected bytes or char"},
        {"row --json=1", "--json takes no value, found '1'"},
        {"row --data", "--data is the last word, expected a value behind it: --data FILE"},
        {"row --rank 2", "unknown option --rank, did you mean --ranks?"},
        {"row --dead 2", "unknown option --dead, did you mean --deadline?"},
        {"row --rosw=2", "unknown option --rosw, did you mean --rows?"},
        {"row --colour", "unknown option --colour, 'flashoverlap bench --help' lists those known"},
        {"row -r", "unknown option -r, 'flashoverlap bench --help' lists those known"},
        {"--json", "nothing to work on was named, expected row or column"},
        {"rwo", "'rwo' is unknown, expected row or column"},
        {"row column", "'column' comes after 'row', expected only one of row or column"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        targets t;
        assert_int_equal(parse(&t, cases[i].line), CLI_BAD);
        assert_string_equal(t.sentence, cases[i].sentence);
    }
    targets t;
    assert_int_equal(parse(&t, "row --link 5"), CLI_BAD);
    assert_non_null(strstr(t.sentence, "--link is '5', expected a speed"));
}

static void test_links(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double bytes_per_s, latency_s, ratio;
        fo_topology topology;
    } cases[] = {
        {"off", 0, 0, 0, FO_SWITCH},
        {"2GB/s", 2e9, 0, 0, FO_SWITCH},
        {"2GB/s,5us", 2e9, 5e-6, 0, FO_SWITCH},
        {"0.5GB/s,5us,mesh", 0.5e9, 5e-6, 0, FO_MESH},
        {"16Gbit/s,mesh,100ns", 2e9, 1e-7, 0, FO_MESH},
        {"100MB/s,1ms,switch", 1e8, 1e-3, 0, FO_SWITCH},
        {"7KB/s", 7e3, 0, 0, FO_SWITCH},
        {"auto:0.56", 0, 0, 0.56, FO_SWITCH},
        {"auto:1,5us,mesh", 0, 5e-6, 1, FO_MESH},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        cli_link link = {{1, 1, FO_MESH}, 1};
        assert_true(cli_options_link(cases[i].text, &link));
        assert_true(link.link.bytes_per_s >= 0.999999 * cases[i].bytes_per_s &&
                    link.link.bytes_per_s <= 1.000001 * cases[i].bytes_per_s);
        assert_true(link.link.latency_s >= 0.999999 * cases[i].latency_s &&
                    link.link.latency_s <= 1.000001 * cases[i].latency_s);
        assert_true(link.ratio == cases[i].ratio);
        assert_int_equal(link.link.topology, cases[i].topology);
    }
    static const char *const wrong[] = {"",        "5",      "GB/s",    "-1GB/s",   "0GB/s",
                                        "nanGB/s", "2GB",    "2GB/s,",  "2GB/s,5",  "2GB/s,tree",
                                        "auto:",   "auto:0", "auto:-1", "auto:nan", "2GB/s,-5us",
                                        "off,5us", "2 GB/s", "5us",     "auto",     "infGB/s"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        cli_link link = {{1, 2, FO_MESH}, 3};
        assert_false(cli_options_link(wrong[i], &link));
        assert_true(link.link.bytes_per_s == 1 && link.link.latency_s == 2 && link.ratio == 3);
    }
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const words[] = {"train", "sample", "schedule", "bench", "info"};
    assert_string_equal(cli_options_nearest("trian", words, 5), "train");
    assert_string_equal(cli_options_nearest("sched", words, 5), "schedule");
    assert_string_equal(cli_options_nearest("benhc", words, 5), "bench");
    assert_string_equal(cli_options_nearest("inf", words, 5), "info");
    assert_null(cli_options_nearest("zzzz", words, 5));
    assert_null(cli_options_nearest("", words, 5));
    char longest[300];
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_null(cli_options_nearest(longest, words, 5));
}

/* Every option is there, with its default, and no line is wider than a terminal. */
static void test_help(void **state)
{
    (void)state;
    targets t;
    prepare(&t);
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    cli_options_help(&t.command, out);
    fclose(out);
    for (const cli_option *o = t.options; o->type != CLI_END; o++)
        assert_non_null(strstr(text, o->name));
    assert_non_null(strstr(text, "ranks [2]"));
    assert_non_null(strstr(text, "format [bytes]"));
    for (const char *line = text; *line; line += strcspn(line, "\n"), line += *line == '\n')
        assert_true(strcspn(line, "\n") <= 80);
    free(text);

    char *words[] = {"row", "--help", "--nonsense"};
    assert_int_equal(cli_options_parse(&t.command, 3, words, t.sentence, sizeof t.sentence),
                     CLI_HELP);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_values), cmocka_unit_test(test_sentences),
        cmocka_unit_test(test_links),  cmocka_unit_test(test_nearest),
        cmocka_unit_test(test_help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
