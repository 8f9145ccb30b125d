/* Facts for the report: name and value, side by side. */
#ifndef FO_MEASURE_FACTS_H
#define FO_MEASURE_FACTS_H

#include "trace/page.h"

enum { FO_MEASURE_FACTS = 24 };

typedef struct fo_measure_facts {
    fo_page_fact list[FO_MEASURE_FACTS];
    int count;
    char processor[128], memory[64], cores[32];
} fo_measure_facts;

/* Processor, instruction set, cores, memory, version. Texts live in *facts. */
void fo_measure_facts_machine(fo_measure_facts *facts);
/* The texts are borrowed. */
void fo_measure_facts_add(fo_measure_facts *facts, const char *name, const char *value);

#endif
