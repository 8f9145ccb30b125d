/* What the commands share. */
#ifndef CLI_CLI_H
#define CLI_CLI_H

#include "options.h"

/* Exit codes. */
enum { EXIT_DONE = 0, EXIT_RUN_FAILED = 1, EXIT_BAD_USAGE = 2, EXIT_INTERRUPTED = 130 };

/* One command: the words behind the verb to an exit code. */
typedef int (*cli_main)(int argc, char **argv);
int cmd_train(int argc, char **argv);
int cmd_sample(int argc, char **argv);
int cmd_schedule(int argc, char **argv);
int cmd_bench(int argc, char **argv);
int cmd_plan(int argc, char **argv);
int cmd_calibrate(int argc, char **argv);
int cmd_simulate(int argc, char **argv);
int cmd_info(int argc, char **argv);

/* Parses; prints the help or the sentence when there is nothing to run. True: go on; false: *code
 * is the exit code. */
bool cli_begin(const cli_command *command, int argc, char **argv, int *code);

/* Says on standard error what is wrong with the command line; the exit code for it. */
int cli_usage(const char *verb, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Says a sentence on standard error; of the processes of a job one does. */
void cli_complain(const char *verb, const char *sentence);

/* The exit code for a status; says fo_last_error() on standard error when it is a failure. */
int cli_end(const char *verb, fo_status status);

/* Whether a stream may be coloured: a terminal, and NO_COLOR is unset or empty. */
bool cli_color(FILE *stream);

#endif
