/* Reading Chakra execution traces, written from et_def.proto alone: shares nothing with what writes them. */
#ifndef TEST_PLANNER_CHAKRA_FILE_H
#define TEST_PLANNER_CHAKRA_FILE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMP_NODE = 4, COMM_SEND_NODE = 5, COMM_RECV_NODE = 6 };
enum { DEPS_MOST = 4096 };

typedef struct node {
    uint64_t id, duration;
    int type;
    char name[160];
    uint64_t *data, *ctrl; /* malloc'ed */
    int data_count, ctrl_count;
    bool is_cpu_op;
    int64_t src, dst, tag, size, rows; /* -1: the node has none */
} node;

typedef struct trace_file {
    char version[32], facts[1024]; /* "name=value;" */
    node *nodes;
    int count;
} trace_file;

/* Bytes still to be read. */
typedef struct bytes {
    const unsigned char *at, *end;
} bytes;

static uint64_t take_varint(bytes *b)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        assert_true(b->at < b->end);
        unsigned char byte = *b->at++;
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80)
            return value;
    }
    fail_msg("a varint has more than ten bytes");
    return 0;
}

static bytes take_bytes(bytes *b)
{
    uint64_t length = take_varint(b);
    assert_true(length <= (uint64_t)(b->end - b->at));
    bytes inner = {b->at, b->at + length};
    b->at += length;
    return inner;
}

static void take_text(bytes *b, char *text, size_t size)
{
    bytes inner = take_bytes(b);
    size_t length = (size_t)(inner.end - inner.at);
    assert_true(length < size);
    memcpy(text, inner.at, length);
    text[length] = '\0';
}

/* A field: its number and kind; only varints (0) and lengths (2) are expected. */
static int take_field(bytes *b, int *kind)
{
    uint64_t key = take_varint(b);
    *kind = (int)(key & 7);
    assert_true(*kind == 0 || *kind == 2);
    return (int)(key >> 3);
}

static void take_deps(bytes *b, int kind, uint64_t **list, int *count)
{
    assert_int_equal(kind, 2); /* proto3 packs repeated numbers */
    bytes inner = take_bytes(b);
    *list = realloc(*list, DEPS_MOST * sizeof **list);
    assert_non_null(*list);
    while (inner.at < inner.end) {
        assert_true(*count < DEPS_MOST);
        (*list)[(*count)++] = take_varint(&inner);
    }
}

/* Which field of the choice a value has says its type. */
static void take_attribute(bytes b, node *n, trace_file *file)
{
    char name[64] = "", text[512] = "";
    int kind, chosen = 0;
    uint64_t number = 0;
    while (b.at < b.end) {
        int field = take_field(&b, &kind);
        if (field == 1) {
            take_text(&b, name, sizeof name);
            continue;
        }
        chosen = field;
        if (kind == 0)
            number = take_varint(&b);
        else
            take_text(&b, text, sizeof text);
    }
    if (!n) {
        assert_int_equal(chosen, 29);
        size_t used = strlen(file->facts);
        snprintf(file->facts + used, sizeof file->facts - used, "%s=%s;", name, text);
        return;
    }
    const struct {
        const char *name;
        int field;
        int64_t *target;
    } known[] = {{"comm_src", 7, &n->src},
                 {"comm_dst", 7, &n->dst},
                 {"comm_tag", 7, &n->tag},
                 {"comm_size", 9, &n->size},
                 {"rows", 9, &n->rows}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) {
            assert_int_equal(chosen, known[i].field);
            *known[i].target = (int64_t)number;
        }
    if (!strcmp(name, "is_cpu_op")) {
        assert_int_equal(chosen, 27);
        n->is_cpu_op = number != 0;
    }
}

static void take_node(bytes b, node *n)
{
    *n = (node){.src = -1, .dst = -1, .tag = -1, .size = -1, .rows = -1, .is_cpu_op = true};
    while (b.at < b.end) {
        int kind, field = take_field(&b, &kind);
        switch (field) {
        case 1: n->id = take_varint(&b); break;
        case 2: take_text(&b, n->name, sizeof n->name); break;
        case 3: n->type = (int)take_varint(&b); break;
        case 4: take_deps(&b, kind, &n->ctrl, &n->ctrl_count); break;
        case 5: take_deps(&b, kind, &n->data, &n->data_count); break;
        case 7: n->duration = take_varint(&b); break;
        case 10: take_attribute(take_bytes(&b), n, NULL); break;
        default: fail_msg("a node has field %d", field);
        }
    }
}

static void take_metadata(bytes b, trace_file *file)
{
    while (b.at < b.end) {
        int kind, field = take_field(&b, &kind);
        if (field == 1)
            take_text(&b, file->version, sizeof file->version);
        else if (field == 2)
            take_attribute(take_bytes(&b), NULL, file);
        else
            fail_msg("the metadata has field %d", field);
    }
}

static unsigned char *read_bytes(const char *path, size_t *size)
{
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    *size = (size_t)ftell(in);
    rewind(in);
    unsigned char *data = malloc(*size + 1);
    assert_non_null(data);
    assert_int_equal(fread(data, 1, *size, in), *size);
    fclose(in);
    return data;
}

static trace_file read_trace(const char *path)
{
    trace_file file = {0};
    size_t size;
    unsigned char *data = read_bytes(path, &size);
    bytes b = {data, data + size};
    take_metadata(take_bytes(&b), &file);
    int room = 0;
    while (b.at < b.end) {
        if (file.count == room) {
            room = room ? 2 * room : 256;
            file.nodes = realloc(file.nodes, (size_t)room * sizeof *file.nodes);
            assert_non_null(file.nodes);
        }
        take_node(take_bytes(&b), &file.nodes[file.count++]);
    }
    free(data);
    return file;
}

static void free_trace(trace_file *file)
{
    for (int i = 0; i < file->count; i++) {
        free(file->nodes[i].data);
        free(file->nodes[i].ctrl);
    }
    free(file->nodes);
}

#endif
