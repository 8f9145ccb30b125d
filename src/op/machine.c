/* What the simulator is told about the machine of a group. */
#include "sim/machine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "group/group.h"
#include "op/plan.h"
#include "sim/profile.h"

static bool begins(const fo_op_fact *fact, const char *word)
{
    return !strncmp(fact->what, word, strlen(word));
}

/* Products of the same sizes that are followed by different things come equally often: their mean. */
static void add_entry(fo_sim_machine *m, const fo_plan *plan, fo_sim_work work,
                      const fo_op_fact *fact)
{
    for (int e = 0; e < m->device.entry_count; e++) {
        fo_sim_entry *entry = &m->memory[e];
        if (entry->work == work && entry->k == fact->k && entry->n == fact->n) {
            entry->time_s = (entry->time_s + fact->value) / 2;
            return;
        }
    }
    m->memory[m->device.entry_count++] = (fo_sim_entry){.work = work,
                                                        .dtype = fact->dtype,
                                                        .threads = fo_group_threads(plan->group),
                                                        .at_once = true,
                                                        .rows = fact->rows,
                                                        .k = fact->k,
                                                        .n = fact->n,
                                                        .time_s = fact->value};
}

/* Bytes of the rows of an addition: what is added; with a local sum and the result. */
static double added_bytes(const fo_plan *plan, const fo_op_fact *fact)
{
    return (double)(fact->rows * plan->row_bytes[FO_BUFFER_STAGING]);
}

static double passed_bytes(const fo_plan *plan, const fo_op_fact *fact)
{
    return 2 * added_bytes(plan, fact) + (double)(fact->rows * fact->n * 4);
}

/* Of row-parallel layers the rows of the own shard are summed besides: known by what that adds to a block. */
static void take_wgrad(fo_sim_machine *m, const fo_plan *plan, const fo_op_fact *fact)
{
    fo_op op = plan->desc.op;
    bool column = op == FO_COLUMN_BACKWARD || op == FO_COLUMN_WGRAD;
    if (column || !strcmp(fact->what, "wgrad")) {
        add_entry(m, plan, FO_SIM_WGRAD, fact);
        return;
    }
    for (int e = 0; e < m->device.entry_count; e++) {
        double longer = fact->value - m->memory[e].time_s;
        double bytes = (double)(fact->rows * fact->n) * (double)fo_dtype_size(fact->dtype);
        if (m->memory[e].work == FO_SIM_WGRAD && longer > 0)
            m->device.memory_bytes_per_s = bytes / longer;
    }
}

static void take(fo_sim_machine *m, const fo_plan *plan, const fo_op_fact *fact)
{
    double seconds = fact->value;
    if (!(seconds > 0))
        return;
    if (begins(fact, "gemm"))
        add_entry(m, plan, FO_SIM_GEMM, fact);
    else if (begins(fact, "wgrad"))
        take_wgrad(m, plan, fact);
    else if (begins(fact, "attention_grad"))
        add_entry(m, plan, FO_SIM_ATTENTION_GRAD, fact);
    else if (begins(fact, "attention"))
        add_entry(m, plan, FO_SIM_ATTENTION, fact);
    else if (begins(fact, "turn"))
        m->device.attention_turn_s = seconds / (double)(fact->rows * fact->k * fact->n);
    else if (begins(fact, "pack"))
        add_entry(m, plan, FO_SIM_PACK, fact);
    else if (begins(fact, "add"))
        m->device.epilogue_bytes_per_s = added_bytes(plan, fact) / seconds;
    else if (begins(fact, "pass"))
        m->device.memory_bytes_per_s = passed_bytes(plan, fact) / seconds;
    else if (begins(fact, "software"))
        m->task_s = m->message_s = seconds;
}

/* Of messages of some bytes, or of none; the mean where several kinds were measured. */
static double mean_of(const fo_op_fact *facts, int count, const char *word, bool bytes)
{
    double sum = 0;
    int found = 0;
    for (int i = 0; i < count; i++)
        if (begins(&facts[i], word) && (facts[i].n > 0) == bytes) {
            sum += facts[i].value;
            found++;
        }
    return found ? sum / found : 0;
}

/* Messages that are moved. Both ends' processors move them and compute nothing while they do; what waiting ranks need
 * for one holds that part already, so it is not the link's too. */
static void take_messages(fo_sim_machine *m, const fo_op_fact *facts, int count)
{
    double beside_s = mean_of(facts, count, "beside", true);
    double stream_s = mean_of(facts, count, "stream", true);
    double single_s = mean_of(facts, count, "single", true), bytes = 0;
    for (int i = 0; i < count; i++)
        if (begins(&facts[i], "stream"))
            bytes = (double)facts[i].n;
    if (!(stream_s > 0))
        return;
    /* moving and computing by turns may take longer than moving alone: caches, interrupts */
    double processor_s = beside_s < stream_s ? beside_s : (beside_s + stream_s) / 2;
    double link_s = processor_s < stream_s ? stream_s : fmax(single_s - processor_s, stream_s / 8);
    m->network.link = (fo_sim_link){.bytes_per_s = bytes / link_s,
                                    .latency_s = mean_of(facts, count, "single", false)};
    m->cpu_s_per_byte = processor_s / (2 * bytes); /* one is sent, one received */
}

/* What a profile knows and is not measured for a shape: waking up (who waits for an emulated link is awake when it
 * delivers, transport/hook), and how messages slow computation down where they are moved. One that was named must be
 * there. */
static fo_status take_profile(fo_sim_machine *m, const fo_plan *plan)
{
    char machine[256], path[FO_OP_WISDOM_PATH];
    fo_sim_machine profile;
    fo_op_wisdom_machine(plan->kernel->name, plan->kernel->isa(), fo_group_threads(plan->group),
                         fo_group_transport(plan->group), machine, sizeof machine);
    fo_op_wisdom_profile_path(machine, path);
    bool stated = getenv("FLASHOVERLAP_PROFILE") && *getenv("FLASHOVERLAP_PROFILE");
    if (!path[0] || (!stated && access(path, R_OK) != 0))
        return FO_OK;
    fo_status status = fo_sim_profile_read(path, &profile);
    if (status != FO_OK)
        return stated ? status : FO_OK; /* of another version: as good as none */
    m->wake_s = fo_group_link(plan->group).bytes_per_s > 0 ? 0 : profile.wake_s;
    m->contention = m->views ? 0 : profile.contention;
    fo_sim_machine_free(&profile);
    return FO_OK;
}

/* Products as measured, tile by tile; one thread does everything. */
static fo_status measured(const fo_plan *plan, const fo_op_fact *facts, int count,
                          fo_sim_machine *m)
{
    fo_link link = fo_group_link(plan->group);
    const fo_endpoint *endpoint = fo_group_endpoint(plan->group);
    fo_sim_machine_ideal(m);
    snprintf(m->name, sizeof m->name, "this machine");
    snprintf(m->about, sizeof m->about, "measured at the shape of %.63s", plan->name);
    m->memory = calloc((size_t)count + 1, sizeof *m->memory);
    if (!m->memory)
        return fo_base_error(FO_NO_MEMORY, "%s: no memory for what was measured", plan->name);
    m->device.entries = m->memory;
    m->device.by_tile = m->device.whole_tiles = true;
    m->async = false;
    m->views = (endpoint->ops->caps & FO_TRANSPORT_VIEW) != 0;
    for (int i = 0; i < count; i++)
        take(m, plan, &facts[i]);
    take_messages(m, facts, count);
    fo_status status = take_profile(m, plan);
    if (link.bytes_per_s > 0)
        fo_sim_machine_set_link(m, &link);
    if (status != FO_OK)
        fo_sim_machine_free(m);
    return status;
}

fo_status fo_op_machine_make(const fo_plan *plan, const fo_op_fact *facts, int count,
                             fo_sim_machine *machine)
{
    fo_device device = fo_group_device(plan->group);
    fo_link link = fo_group_link(plan->group);
    fo_status status = FO_OK;
    if (plan->kernel->emulates)
        fo_sim_machine_emulated(&device, &link, machine);
    else
        status = measured(plan, facts, count, machine);
    machine->device.tile_rows = plan->tile_rows;
    machine->device.wgrad_rows = plan->wgrad_rows;
    return status;
}
