/* Facts about the machine. */
#include "measure/facts.h"

#include <stdio.h>
#include <string.h>

#include "flashoverlap/version.h"
#include "kernel/kernel.h"
#include "transport/machine.h"

/* The name the processor gives itself, "" when the system does not say. */
static void read_processor(char *text, size_t size)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    text[0] = '\0';
    while (file && !text[0] && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0)
            continue;
        value += 1 + strspn(value + 1, " \t");
        snprintf(text, size, "%.*s", (int)strcspn(value, "\n"), value);
    }
    if (file)
        fclose(file);
}

void fo_measure_facts_add(fo_measure_facts *facts, const char *name, const char *value)
{
    if (facts->count < FO_MEASURE_FACTS)
        facts->list[facts->count++] = (fo_page_fact){name, value};
}

void fo_measure_facts_machine(fo_measure_facts *facts)
{
    facts->count = 0;
    read_processor(facts->processor, sizeof facts->processor);
    snprintf(facts->cores, sizeof facts->cores, "%d", fo_transport_machine_cores());
    snprintf(facts->memory, sizeof facts->memory, "%.1f GB",
             (double)fo_transport_machine_memory() * 1e-9);
    if (facts->processor[0])
        fo_measure_facts_add(facts, "processor", facts->processor);
    fo_measure_facts_add(facts, "instruction set", fo_kernel_at(0)->isa());
    fo_measure_facts_add(facts, "cores", facts->cores);
    fo_measure_facts_add(facts, "memory", facts->memory);
    fo_measure_facts_add(facts, "flashoverlap", FO_VERSION);
}
