/* Writing protocol buffers. A field is its number and kind, then a varint, or a length and bytes. */
#include "planner/chakra_wire.h"

#include <stdlib.h>
#include <string.h>

enum { VARINT = 0, LENGTH = 2, FIRST_BYTES = 256 };

void fo_planner_chakra_wire_free(fo_planner_chakra_wire *wire)
{
    free(wire->bytes);
    *wire = (fo_planner_chakra_wire){0};
}

static void put(fo_planner_chakra_wire *wire, const void *bytes, size_t count)
{
    if (wire->capacity - wire->used < count && !wire->failed) {
        size_t capacity = wire->capacity ? wire->capacity : FIRST_BYTES;
        while (capacity - wire->used < count)
            capacity *= 2;
        unsigned char *moved = realloc(wire->bytes, capacity);
        wire->failed = !moved;
        wire->bytes = moved ? moved : wire->bytes;
        wire->capacity = moved ? capacity : wire->capacity;
    }
    if (wire->failed || !count)
        return;
    memcpy(wire->bytes + wire->used, bytes, count);
    wire->used += count;
}

/* Seven bits a byte, the lowest first; the eighth says that there are more. */
void fo_planner_chakra_wire_varint(fo_planner_chakra_wire *wire, uint64_t value)
{
    unsigned char bytes[10];
    size_t count = 0;
    for (; value >= 0x80; value >>= 7)
        bytes[count++] = (unsigned char)(value | 0x80);
    bytes[count++] = (unsigned char)value;
    put(wire, bytes, count);
}

static void put_key(fo_planner_chakra_wire *wire, int field, int kind)
{
    fo_planner_chakra_wire_varint(wire, (uint64_t)field << 3 | (uint64_t)kind);
}

static void put_bytes(fo_planner_chakra_wire *wire, int field, const void *bytes, size_t count)
{
    put_key(wire, field, LENGTH);
    fo_planner_chakra_wire_varint(wire, count);
    put(wire, bytes, count);
}

void fo_planner_chakra_wire_number(fo_planner_chakra_wire *wire, int field, uint64_t value)
{
    put_key(wire, field, VARINT);
    fo_planner_chakra_wire_varint(wire, value);
}

void fo_planner_chakra_wire_text(fo_planner_chakra_wire *wire, int field, const char *text)
{
    put_bytes(wire, field, text, strlen(text));
}

void fo_planner_chakra_wire_inner(fo_planner_chakra_wire *wire, int field,
                                  const fo_planner_chakra_wire *inner)
{
    wire->failed |= inner->failed;
    put_bytes(wire, field, inner->bytes, inner->used);
}
