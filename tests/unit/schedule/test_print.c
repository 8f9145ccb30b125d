/* What fo_schedule_print and fo_schedule_print_json write, against files. FO_GOLDEN_UPDATE=1 in the
 * environment writes the files anew: read the difference before believing it. */
#include "unit/schedule/programs.h"

typedef fo_status (*printer)(const fo_schedule_desc *desc, FILE *out);

/* What a printer writes; the caller frees it. */
static char *printed(printer print, const fo_schedule_desc *desc)
{
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    assert_int_equal(print(desc, out), FO_OK);
    assert_int_equal(fclose(out), 0);
    return text;
}

/* golden/NAME.txt beside this file. */
static void golden_path(const char *name, char *path, size_t size)
{
    const char *slash = strrchr(__FILE__, '/');
    int folder = slash ? (int)(slash - __FILE__) : 1;
    snprintf(path, size, "%.*s/golden/%s.txt", folder, slash ? __FILE__ : ".", name);
}

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s can't be opened; FO_GOLDEN_UPDATE=1 writes it", path);
    char *text = calloc(1, 1 << 20);
    assert_non_null(text);
    assert_true(fread(text, 1, (1 << 20) - 1, file) > 0);
    fclose(file);
    return text;
}

static void check_golden_on(int nodes, const char *name, fo_pattern pattern, const char *strategy,
                            int ranks, int64_t rows)
{
    char path[1024];
    fo_schedule_desc desc = describe(pattern, strategy, ranks, rows, 4);
    desc.nodes = nodes;
    char *now = printed(fo_schedule_print, &desc);
    golden_path(name, path, sizeof path);
    if (getenv("FO_GOLDEN_UPDATE")) {
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        fputs(now, file);
        assert_int_equal(fclose(file), 0);
    }
    char *expected = read_file(path);
    assert_string_equal(now, expected);
    free(expected);
    free(now);
}

static void check_golden(const char *name, fo_pattern pattern, const char *strategy, int ranks,
                         int64_t rows)
{
    check_golden_on(0, name, pattern, strategy, ranks, rows);
}

static void test_golden(void **state)
{
    (void)state;
    check_golden("gather_flash", FO_PATTERN_GATHER, "flash", 4, 64);
    check_golden("reduce_flash_2", FO_PATTERN_REDUCE, "flash:2", 4, 64);
    check_golden("reduce_direct", FO_PATTERN_REDUCE, "direct", 4, 64);
    check_golden("reduce_none", FO_PATTERN_REDUCE, "none", 3, 48);
    check_golden("gather2_slice_2", FO_PATTERN_GATHER2, "slice:2", 3, 48);
    check_golden("joint_flash_2", FO_PATTERN_JOINT, "flash:2", 4, 64);
    check_golden("joint_ring", FO_PATTERN_JOINT, "ring", 3, 48);
    check_golden("wgrad_flash", FO_PATTERN_WGRAD, "flash", 3, 48);
    check_golden("block_flash", FO_PATTERN_BLOCK, "flash", 4, 64);
    check_golden("block_none", FO_PATTERN_BLOCK, "none", 3, 48);
    check_golden("block_ring", FO_PATTERN_BLOCK, "ring", 3, 48);
    check_golden_on(2, "gather_hier", FO_PATTERN_GATHER, "hier", 6, 48);
    check_golden_on(2, "reduce_hier", FO_PATTERN_REDUCE, "hier", 4, 32);
    check_golden_on(2, "reduce_none_hier", FO_PATTERN_REDUCE, "none/hier", 4, 32);
    check_golden_on(2, "joint_hier_2", FO_PATTERN_JOINT, "hier:2", 4, 32);
    check_golden_on(2, "block_hier", FO_PATTERN_BLOCK, "hier", 4, 32);
    check_golden_on(2, "reduce_flash_on_2", FO_PATTERN_REDUCE, "flash", 4, 32);
}

static int count(const char *text, const char *word)
{
    int found = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word))
        found++;
    return found;
}

/* Brackets outside strings are balanced, and nothing follows the object. */
static void check_brackets(const char *json)
{
    char open[64];
    int depth = 0;
    bool quoted = false;
    for (const char *at = json; *at; at++) {
        if (quoted) {
            at += *at == '\\';
            quoted = *at != '"';
        } else if (*at == '"') {
            quoted = true;
        } else if (*at == '{' || *at == '[') {
            assert_true(depth < 64 && (depth > 0 || at == json));
            open[depth++] = *at == '{' ? '}' : ']';
        } else if (*at == '}' || *at == ']') {
            assert_true(depth > 0 && open[--depth] == *at);
        } else if (*at == ',') {
            assert_true(at[1] != ',' && at[1] != ']' && at[1] != '}');
        }
    }
    assert_int_equal(depth, 0);
    assert_false(quoted);
}

static void test_json(void **state)
{
    (void)state;
    for (fo_pattern pattern = FO_PATTERN_GATHER; pattern <= FO_PATTERN_BLOCK; pattern++)
        for (int ranks = 1; ranks <= 4; ranks++) {
            fo_schedule_desc desc = describe(pattern, "flash:2", ranks, 8 * ranks, 1);
            fo_verdict verdict;
            set s = build(pattern, "flash:2", ranks, 8 * ranks, 1);
            assert_int_equal(verify(&s, &verdict), FO_OK);
            char *json = printed(fo_schedule_print_json, &desc);
            check_brackets(json);
            assert_int_equal(count(json, "\"kind\":"), verdict.tasks);
            assert_int_equal(count(json, "\"kind\":\"send\""), verdict.messages);
            assert_int_equal(count(json, "\"rank\":"), ranks);
            assert_int_equal(count(json, "\"ok\":true"), 1);
            free(json);
            destroy(&s);
        }
}

static void test_no_rows(void **state)
{
    (void)state;
    fo_schedule_desc desc = describe(FO_PATTERN_JOINT, "flash", 3, 0, 1);
    char *text = printed(fo_schedule_print, &desc), *json = printed(fo_schedule_print_json, &desc);
    assert_non_null(strstr(text, "verified"));
    check_brackets(json);
    free(json);
    free(text);
}

/* Messages between machines are marked, whatever the strategy; every role has its name. */
static void test_json_machines(void **state)
{
    static const char *const roles[] = {"shard",   "full",    "gathered", "acc",
                                        "partial", "staging", "hidden",   "output"};
    (void)state;
    fo_schedule_desc desc = describe(FO_PATTERN_BLOCK, "hier", 6, 48, 1);
    desc.nodes = 2;
    char *json = printed(fo_schedule_print_json, &desc), name[64];
    check_brackets(json);
    assert_int_equal(count(json, "\"nodes\":2"), 1);
    /* a shard and a sum of every rank, sent and received */
    assert_int_equal(count(json, "\"slow\":true"), 6 * 2 * 2);
    assert_int_equal(count(json, "\"slow\":false"), 6 * 2 * 2 * 4);
    for (int i = 0; i < FO_BUFFER_ROLES; i++) {
        snprintf(name, sizeof name, "\"role\":\"%s\"", roles[i]);
        assert_int_equal(count(json, name), 6);
    }
    free(json);
    desc.nodes = 4;
    assert_int_equal(fo_schedule_print_json(&desc, stdout), FO_INVALID);
    assert_int_equal(fo_schedule_print(&desc, stdout), FO_INVALID);
    assert_non_null(strstr(fo_last_error(), "works is 3"));
}

/* A cell with more in it than a line can show stays a line. */
static void test_crowded(void **state)
{
    (void)state;
    fo_schedule_desc desc = describe(FO_PATTERN_GATHER2, "slice:40", 8, 8 * 40, 1);
    char *text = printed(fo_schedule_print, &desc);
    assert_non_null(strstr(text, "verified"));
    free(text);
}

static void test_errors(void **state)
{
    (void)state;
    fo_schedule_desc desc = describe(FO_PATTERN_GATHER, "flash", 4, 64, 1);
    FILE *full = fopen("/dev/full", "w");
    if (full) {
        setvbuf(full, NULL, _IONBF, 0);
        assert_int_equal(fo_schedule_print(&desc, full), FO_IO);
        fclose(full);
    }
    desc.ranks = 0;
    assert_int_equal(fo_schedule_print(&desc, stdout), FO_INVALID);
    assert_int_equal(fo_schedule_print_json(&desc, stdout), FO_INVALID);
    desc.ranks = 4;
    desc.stream_rows = 0;
    assert_int_equal(fo_schedule_print(&desc, stdout), FO_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_golden),        cmocka_unit_test(test_json),
        cmocka_unit_test(test_json_machines), cmocka_unit_test(test_no_rows),
        cmocka_unit_test(test_crowded),       cmocka_unit_test(test_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
