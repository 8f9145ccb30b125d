/* The command line as it may be typed again. */
#ifndef CLI_COMMAND_LINE_H
#define CLI_COMMAND_LINE_H

/* "flashoverlap bench row --ranks 2": the verb and the words behind it, quoted for the shell where they must
 * be. malloc'ed; NULL without memory. */
char *cli_command_line(const char *verb, int argc, char **argv);

#endif
