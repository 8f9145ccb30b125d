/* flashoverlap calibrate */
#include <stdio.h>
#include <unistd.h>

#include "cli.h"
#include "flashoverlap/calibrate.h"
#include "flashoverlap/job.h"

int cmd_calibrate(int argc, char **argv)
{
    fo_calibrate_options o;
    fo_calibrate_defaults(&o);
    bool forget = false;
    int code;
    const cli_option options[] = {
        {CLI_TEXT, "out", &o.path, "FILE",
         "the profile, as JSON; else where bench and train find it", 0, 0},
        {CLI_FLAG, "quick", &o.quick, NULL, "10 s instead of 60, with fewer sizes", 0, 0},
        {CLI_INT, "ranks", &o.group.ranks, "N", "that work at once", 1, 4096},
        {CLI_INT, "threads", &o.group.threads, "N", "of a rank then; 0: all", 0, 4096},
        {CLI_TEXT, "transport", &o.group.transport, "NAME", "shm, self, mpi", 0, 0},
        {CLI_TEXT, "kernel", &o.group.kernel, "NAME", "onednn or ref", 0, 0},
        {CLI_DOUBLE, "deadline", &o.group.deadline_s, "S", "of a wait; 0: 60", 0, 1e9},
        {CLI_FLAG, "json", &o.json, NULL, "the profile instead of the tables", 0, 0},
        {CLI_FLAG, "forget", &forget, NULL, "measure nothing: remove kept profiles and wisdom", 0,
         0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "calibrate",
        .about =
            "Measures this machine: products and attention over the rows of a slice, packing,\n"
            "passes over memory, messages, the overhead of a task. Prints tables; writes a\n"
            "machine profile, which simulate and plan read, and predictions. Best on a\n"
            "machine that does nothing else.\n",
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    if (forget) {
        int files = fo_profile_forget();
        printf("%d file%s removed\n", files, files == 1 ? "" : "s");
        return 0;
    }
    o.progress = isatty(STDERR_FILENO) && fo_job_first() ? stderr : NULL;
    return cli_end("calibrate", fo_calibrate_run(&o, stdout));
}
