/* --profile of the commands that run on this machine. */
#ifndef CLI_PROFILE_H
#define CLI_PROFILE_H

#include <stdbool.h>

/* Names the profile of this machine for the run (fo_profile_use): a file that calibrate wrote, whatever it is called;
 * names of machines that are simulated are none. False: *code is the exit code, and what is wrong has been said. */
bool cli_profile(const char *verb, const char *path, int *code);

#endif
