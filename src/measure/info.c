/* What is built in and what the machine has. */
#include "flashoverlap/info.h"

#include <unistd.h>

#include "base/error.h"
#include "flashoverlap/job.h"
#include "flashoverlap/version.h"
#include "kernel/kernel.h"
#include "transport/job.h"
#include "transport/machine.h"
#include "transport/transport.h"

#if defined(__clang__)
#define COMPILER "Clang " __clang_version__
#elif defined(__GNUC__)
#define COMPILER "GCC " __VERSION__
#else
#define COMPILER "unknown"
#endif

/* Texts printed here come from the tables of this library and need no escaping, but for paths. */

enum { MODULE_PATH = 1100 };

static void print_dtypes(const fo_kernel *kernel, const char *quote, FILE *out)
{
    bool first = true;
    for (fo_dtype dtype = FO_F32; dtype <= FO_BF16; dtype++)
        if (kernel->supports(dtype)) {
            fprintf(out, "%s%s%s%s", first ? "" : ", ", quote, fo_dtype_name(dtype), quote);
            first = false;
        }
}

/* Paths may hold anything. */
static void print_quoted(const char *text, FILE *out)
{
    fputc('"', out);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            fprintf(out, "\\%c", *text);
        else if ((unsigned char)*text < ' ')
            fprintf(out, "\\u%04x", (unsigned)*text);
        else
            fputc(*text, out);
    fputc('"', out);
}

/* Modules, the job, and what a launcher may have to be told: when it refuses, this program never runs. */
static void print_mpi(FILE *out)
{
    char path[MODULE_PATH];
    int modules = 0;
    fo_job job;
    fo_job_get(&job);
    fputs("MPI\n", out);
    while (fo_transport_job_module(modules, path, sizeof path))
        fprintf(out, "  %-14s %s\n", modules++ ? "" : "modules", path);
    if (!modules)
        fprintf(out,
                "  %-14s none; install openmpi-bin libopenmpi-dev, or mpich libmpich-dev, and "
                "build again\n",
                "modules");
    if (job.launched)
        fprintf(out, "  %-14s rank %d of %d, started by %s\n", "job", job.rank, job.size,
                job.launcher);
    else
        fprintf(out, "  %-14s none; mpirun -n 4 flashoverlap train ... starts one\n", "job");
    if (geteuid() == 0)
        fprintf(out,
                "  %-14s mpirun --allow-run-as-root, or OMPI_ALLOW_RUN_AS_ROOT=1 and\n"
                "  %-14s OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 (Open MPI)\n",
                "as root", "");
    fprintf(out, "  %-14s mpirun --oversubscribe (Open MPI)\n", "above slots");
}

static void print_json(FILE *out)
{
    fprintf(out,
            "{\"version\": \"%s\", \"compiler\": \"%s\", \"isa\": \"%s\", \"cores\": %d, "
            "\"memory_bytes\": %zu,\n \"kernels\": [",
            FO_VERSION, COMPILER, fo_kernel_at(0)->isa(), fo_transport_machine_cores(),
            fo_transport_machine_memory());
    for (int i = 0; fo_kernel_at(i); i++) {
        const fo_kernel *kernel = fo_kernel_at(i);
        fprintf(out, "%s\n  {\"name\": \"%s\", \"isa\": \"%s\", \"dtypes\": [", i ? "," : "",
                kernel->name, kernel->isa());
        print_dtypes(kernel, "\"", out);
        fprintf(out, "], \"about\": \"%s\"}", kernel->about);
    }
    fputs("],\n \"transports\": [", out);
    for (int i = 0; fo_transport_at(i); i++)
        fprintf(out, "%s\n  {\"name\": \"%s\", \"about\": \"%s\"}", i ? "," : "",
                fo_transport_at(i)->ops->name, fo_transport_at(i)->about);
    fputs("],\n \"mpi\": [", out);
    char path[MODULE_PATH];
    for (int i = 0; fo_transport_job_module(i, path, sizeof path); i++) {
        fputs(i ? ", " : "", out);
        print_quoted(path, out);
    }
    fo_job job;
    fo_job_get(&job);
    if (job.launched)
        fprintf(out, "],\n \"job\": {\"launcher\": \"%s\", \"rank\": %d, \"size\": %d}}\n",
                job.launcher, job.rank, job.size);
    else
        fputs("],\n \"job\": null}\n", out);
}

static void print_text(FILE *out)
{
    fprintf(out, "flashoverlap %s, built with %s\n\n", FO_VERSION, COMPILER);
    fprintf(out, "instruction set  %s\n", fo_kernel_at(0)->isa());
    fprintf(out, "cores            %d\n", fo_transport_machine_cores());
    fprintf(out, "memory           %.1f GB\n", (double)fo_transport_machine_memory() * 1e-9);
    fputs("kernels\n", out);
    for (int i = 0; fo_kernel_at(i); i++) {
        const fo_kernel *kernel = fo_kernel_at(i);
        fprintf(out, "  %-14s %s (", kernel->name, kernel->about);
        print_dtypes(kernel, "", out);
        fprintf(out, "; %s)\n", kernel->isa());
    }
    fputs("transports\n", out);
    for (int i = 0; fo_transport_at(i); i++)
        fprintf(out, "  %-14s %s\n", fo_transport_at(i)->ops->name, fo_transport_at(i)->about);
    print_mpi(out);
}

fo_status fo_info_print(bool json, FILE *out)
{
    if (json)
        print_json(out);
    else
        print_text(out);
    if (fflush(out) || ferror(out))
        return fo_base_error(FO_IO, "info: the output can't be written");
    return FO_OK;
}
