/* flashoverlap: the program. Picks the command, turns statuses into sentences and exit codes. */
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "flashoverlap/job.h"
#include "flashoverlap/status.h"
#include "flashoverlap/version.h"

static const struct {
    const char *name, *about;
    cli_main run;
} commands[] = {
    {"train", "train GPT-2 on text, tensor-parallel; compare strategies", cmd_train},
    {"sample", "write text with a trained model", cmd_sample},
    {"schedule", "print and verify the step table of a strategy", cmd_schedule},
    {"bench", "measure one layer under several strategies", cmd_bench},
    {"plan", "choose how to split a model over a cluster, and what to overlap", cmd_plan},
    {"simulate", "predict a layer or a step on a stated machine", cmd_simulate},
    {"calibrate", "measure this machine, write its profile", cmd_calibrate},
    {"info", "what this build and this machine offer", cmd_info},
};

enum { COMMANDS = sizeof commands / sizeof *commands };

static void print_help(FILE *out)
{
    fputs("Usage: flashoverlap <command> [options], flashoverlap --version\n"
          "Trains transformers tensor-parallel, communication hidden behind computation.\n\n",
          out);
    for (int i = 0; i < COMMANDS; i++)
        fprintf(out, "  %-10s %s\n", commands[i].name, commands[i].about);
    fputs("\n'flashoverlap <command> --help' lists a command's options.\n"
          "Exit codes: 0 done, 1 the run failed, 2 bad usage, 130 interrupted.\n",
          out);
}

bool cli_begin(const cli_command *command, int argc, char **argv, int *code)
{
    char sentence[512];
    for (int i = 0; i < argc; i++) /* before parsing, which overwrites the defaults */
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) {
            cli_options_help(command, stdout);
            *code = EXIT_DONE;
            return false;
        }
    if (cli_options_parse(command, argc, argv, sentence, sizeof sentence) == CLI_GO)
        return true;
    *code = cli_usage(command->name, "%s", sentence);
    return false;
}

/* Launchers kill a job as soon as one of its processes ends with a failure, and ranks take one that ends for dead: none
 * leaves before the one that speaks has spoken and all know how they end. */
static void stay(void)
{
    struct timespec pause = {.tv_nsec = 500000000};
    fo_job job;
    fo_job_get(&job);
    if (job.size > 1)
        nanosleep(&pause, NULL);
}

int cli_usage(const char *verb, const char *format, ...)
{
    char sentence[1200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    cli_complain(verb, sentence); /* every process of a job finds the same */
    return EXIT_BAD_USAGE;
}

void cli_complain(const char *verb, const char *sentence)
{
    char line[1300];
    fflush(stdout);
    snprintf(line, sizeof line, "flashoverlap%s%s: %s", verb ? " " : "", verb ? verb : "",
             sentence);
    fo_job_say(line);
    stay();
}

int cli_end(const char *verb, fo_status status)
{
    if (status == FO_OK)
        return EXIT_DONE;
    const char *sentence = fo_last_error();
    size_t length = strlen(verb);
    if (!strncmp(sentence, verb, length) && !strncmp(sentence + length, ": ", 2))
        sentence += length + 2; /* the library says for whom, too */
    cli_complain(verb, *sentence ? sentence : fo_status_text(status));
    if (status == FO_INTERRUPTED)
        return EXIT_INTERRUPTED;
    return status == FO_INVALID || status == FO_UNSUPPORTED ? EXIT_BAD_USAGE : EXIT_RUN_FAILED;
}

bool cli_color(FILE *stream)
{
    const char *no = getenv("NO_COLOR"), *terminal = getenv("TERM");
    fo_job job;
    fo_job_get(&job);
    if (job.launched) /* launchers give terminals to what they pass on to files */
        return false;
    return isatty(fileno(stream)) && !(no && *no) && !(terminal && !strcmp(terminal, "dumb"));
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        if (fo_job_speaks())
            print_help(stderr);
        stay();
        return EXIT_BAD_USAGE;
    }
    const char *verb = argv[1], *names[COMMANDS];
    if (!strcmp(verb, "--help") || !strcmp(verb, "-h") || !strcmp(verb, "help")) {
        print_help(stdout);
        return EXIT_DONE;
    }
    if (!strcmp(verb, "--version")) {
        printf("flashoverlap %s\n", FO_VERSION);
        return EXIT_DONE;
    }
    for (int i = 0; i < COMMANDS; i++) {
        names[i] = commands[i].name;
        if (!strcmp(verb, names[i]))
            return commands[i].run(argc - 2, argv + 2);
    }
    const char *nearest = cli_options_nearest(verb, names, COMMANDS);
    if (nearest)
        return cli_usage(NULL, "unknown command '%s', did you mean '%s'?", verb, nearest);
    return cli_usage(NULL, "unknown command '%s', 'flashoverlap --help' lists those known", verb);
}

/* In a job every process runs the whole command, and one of them writes. */
int main(int argc, char **argv)
{
    bool silent = !fo_job_first() && freopen("/dev/null", "w", stdout);
    int code = run(argc, argv);
    if (silent)
        return fo_job_end(code);
    if ((fflush(stdout) || ferror(stdout)) && code == EXIT_DONE) {
        fprintf(stderr, "flashoverlap: standard output can't be written: %s\n", strerror(errno));
        code = EXIT_RUN_FAILED;
    }
    return fo_job_end(code);
}
