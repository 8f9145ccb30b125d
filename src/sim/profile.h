/* Machine profiles: JSON files that say where every figure is from.
 *
 * {"format": "flashoverlap-machine-profile", "format_version": 2, "name": "a100-sxm", "about": "...",
 *  "device":  {"bf16_flops_per_s": {"value": 271e12, "source": "...", "confidence": "measured"}, ...},
 *  "network": {"topology": {"value": "switch", ...}, "bytes_per_s": {...}, "latency_s": {...}, "outer": {...}},
 *  "software": {"task_s": {...}, "contention": {...}, ...},
 *  "gemm": [...], "wgrad": [...], ...            the lists that `flashoverlap calibrate` measures (calibrate.h)}
 * confidence: "vendor", "measured", "model", "community"; of lists that were measured "high", "medium", "low".
 * docs/profiles.md lists every field. Version 1 (calibrate's lists alone) is read too. */
#ifndef FO_SIM_PROFILE_H
#define FO_SIM_PROFILE_H

#include <stdio.h>

#include "flashoverlap/status.h"
#include "sim/machine.h"

/* `word`: the name of a shipped profile, or a file (what holds a '/' or ends in ".json"). FO_INVALID: a field that
 * is missing, negative, mis-typed or unknown, with its path ("device.launch_s") and a valid example; an unknown
 * name, with those there are. FO_IO. The machine is freed by fo_sim_machine_free. */
fo_status fo_sim_profile_read(const char *word, fo_sim_machine *machine);
/* The same from text in memory; `name` for messages. */
fo_status fo_sim_profile_parse(const char *name, const char *text, size_t bytes,
                               fo_sim_machine *machine);
/* Names of the shipped profiles, NULL after the last. */
const char *const *fo_sim_profile_names(void);
/* The text of a shipped profile, NULL: there is none of that name. */
const char *fo_sim_profile_text(const char *name);

#endif
