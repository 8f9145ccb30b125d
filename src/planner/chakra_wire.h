/* Writing protocol buffers: the few kinds of field that Chakra traces need. */
#ifndef FO_PLANNER_CHAKRA_WIRE_H
#define FO_PLANNER_CHAKRA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A message being written; starts zeroed, ends with _free. Without memory `failed` is set and stays. */
typedef struct fo_planner_chakra_wire {
    unsigned char *bytes;
    size_t used, capacity;
    bool failed;
} fo_planner_chakra_wire;

void fo_planner_chakra_wire_free(fo_planner_chakra_wire *wire);

/* A number without a field: the length in front of a message of a file. */
void fo_planner_chakra_wire_varint(fo_planner_chakra_wire *wire, uint64_t value);
/* uint64, int64, int32 (never negative here), bool, enum. Zero is written too: of a choice it says what was chosen. */
void fo_planner_chakra_wire_number(fo_planner_chakra_wire *wire, int field, uint64_t value);
/* string, bytes. */
void fo_planner_chakra_wire_text(fo_planner_chakra_wire *wire, int field, const char *text);
/* A message inside, or numbers packed. */
void fo_planner_chakra_wire_inner(fo_planner_chakra_wire *wire, int field,
                                  const fo_planner_chakra_wire *inner);

#endif
