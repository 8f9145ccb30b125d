/* flashoverlap info */
#include "cli.h"
#include "flashoverlap/info.h"

int cmd_info(int argc, char **argv)
{
    bool json = false;
    int code;
    const cli_option options[] = {
        {CLI_FLAG, "json", &json, NULL, "as one JSON object", 0, 0},
        {.type = CLI_END},
    };
    const cli_command command = {
        .name = "info",
        .about = "Version, instruction set, kernels, transports, cores and memory.\n",
        .options = options};
    if (!cli_begin(&command, argc, argv, &code))
        return code;
    return cli_end("info", fo_info_print(json, stdout));
}
