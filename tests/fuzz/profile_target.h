/* Any bytes as a machine profile: refused with a sentence, or a machine whose figures can all be worked with. */
#ifndef TESTS_FUZZ_PROFILE_TARGET_H
#define TESTS_FUZZ_PROFILE_TARGET_H

#include <math.h>
#include <string.h>

#include "fuzz/check.h"
#include "sim/operation.h"
#include "sim/profile.h"

static inline void fuzz_profile_curve(const fo_sim_curve *curve)
{
    FUZZ_CHECK(curve->points >= 0 && curve->points <= FO_SIM_POINTS);
    for (int i = 0; i < curve->points; i++) {
        FUZZ_CHECK(curve->x[i] > (i ? curve->x[i - 1] : 0) && isfinite(curve->x[i]));
        FUZZ_CHECK(curve->y[i] > 0 && curve->y[i] <= 1);
    }
}

static inline void fuzz_profile_figures(const fo_sim_machine *m)
{
    const double figures[] = {m->task_s,
                              m->message_s,
                              m->wake_s,
                              m->cpu_s_per_byte,
                              m->contention,
                              m->device.launch_s,
                              m->device.memory_bytes_per_s,
                              m->device.epilogue_bytes_per_s,
                              m->device.memory_bytes,
                              m->network.link.bytes_per_s,
                              m->network.link.latency_s,
                              m->network.outer.bytes_per_s,
                              m->network.outer.latency_s};
    for (size_t i = 0; i < sizeof figures / sizeof figures[0]; i++)
        FUZZ_CHECK(isfinite(figures[i]) && figures[i] >= 0);
    FUZZ_CHECK(m->device.flops_per_s[FO_F32] > 0 || m->device.flops_per_s[FO_BF16] > 0);
    FUZZ_CHECK(m->device.tile_rows >= 1 && m->device.wgrad_rows >= 1);
    FUZZ_CHECK(!m->device.units || (m->device.tile_m > 0 && m->device.tile_n > 0 &&
                                    m->device.comm_units < m->device.units));
    FUZZ_CHECK(m->name[0] && memchr(m->name, 0, sizeof m->name));
    FUZZ_CHECK(memchr(m->about, 0, sizeof m->about));
    fuzz_profile_curve(&m->device.by_rows);
    fuzz_profile_curve(&m->device.by_width);
    fuzz_profile_curve(&m->network.link.efficiency);
    fuzz_profile_curve(&m->network.outer.efficiency);
}

/* Returns whether it was read. */
static inline int fuzz_profile(const uint8_t *bytes, size_t size)
{
    fo_sim_machine machine;
    fo_status status = fo_sim_profile_parse("fuzz", (const char *)bytes, size, &machine);
    if (status != FO_OK) {
        FUZZ_CHECK(status == FO_INVALID && fo_last_error()[0]);
        FUZZ_CHECK(strncmp(fo_last_error(), "fuzz: ", 6) == 0 &&
                   strstr(fo_last_error(), "expected"));
        FUZZ_CHECK(!machine.memory && !machine.device.entries);
        return 0;
    }
    fuzz_profile_figures(&machine);
    for (int work = 0; work < FO_SIM_WORKS; work++)
        for (int dtype = FO_F32; dtype <= FO_BF16; dtype++) {
            double seconds = fo_sim_cost_product(&machine.device, (fo_sim_work)work,
                                                 (fo_dtype)dtype, 1, 300, 1000, 700, false);
            FUZZ_CHECK(isfinite(seconds) && seconds >= 0);
        }
    fo_sim_machine_free(&machine);
    return 1;
}

#endif
