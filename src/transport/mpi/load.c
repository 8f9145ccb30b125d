/* Finds and loads the module of the MPI library that the launcher belongs to. A program without MPI installed
 * never gets here. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/error.h"
#include "flashoverlap/job.h"
#include "transport/job.h"
#include "transport/mpi/mpi.h"

/* Both set by cmake/mpi.cmake. */
#ifndef FO_MPI_FAMILIES
#define FO_MPI_FAMILIES "" /* modules built with this library, by name, with a space behind each */
#endif
#ifndef FO_MPI_BUILD_DIR
#define FO_MPI_BUILD_DIR ""
#endif

enum { PATH_BYTES = 1024, LOOKED_BYTES = 2048 };

static const char *const families[] = {"openmpi", "mpich", "mpi"};
enum { FAMILIES = sizeof families / sizeof *families };

/* Where modules are looked for: by FLASHOVERLAP_MPI_DIR, beside the program, where it installs them, where it was
 * built. False past the end; empty: nothing to look at. */
static bool folder_at(int index, char *folder, size_t bytes)
{
    char program[PATH_BYTES] = "";
    const char *set = getenv("FLASHOVERLAP_MPI_DIR");
    ssize_t length = readlink("/proc/self/exe", program, sizeof program - 1);
    char *slash = length > 0 ? strrchr(program, '/') : NULL;
    if (slash)
        *slash = 0;
    *folder = 0;
    if (index == 0 && set && *set)
        snprintf(folder, bytes, "%s", set);
    else if (index == 0 || (set && *set)) /* said where: nowhere else */
        return index == 0;
    else if (index == 1 && slash)
        snprintf(folder, bytes, "%s", program);
    else if (index == 2 && slash)
        snprintf(folder, bytes, "%s/../lib/flashoverlap", program);
    else if (index == 3)
        snprintf(folder, bytes, "%s", FO_MPI_BUILD_DIR);
    return index < 4;
}

static bool find_module(const char *family, char *path, size_t bytes)
{
    char folder[PATH_BYTES];
    for (int i = 0; folder_at(i, folder, sizeof folder); i++) {
        if (!*folder)
            continue;
        snprintf(path, bytes, "%s/libflashoverlap-mpi-%s.so", folder, family);
        if (access(path, R_OK) == 0)
            return true;
    }
    return false;
}

static void list_folders(char *text, size_t bytes)
{
    char folder[PATH_BYTES];
    *text = 0;
    for (int i = 0; folder_at(i, folder, sizeof folder); i++) {
        size_t used = strlen(text);
        if (*folder)
            snprintf(text + used, bytes - used, "%s%s", used ? ", " : "", folder);
    }
}

static const char *launcher_of(const char *family)
{
    return strcmp(family, "mpich") == 0 ? "mpiexec of MPICH" : "mpirun of Open MPI";
}

static const char *packages_of(const char *family)
{
    return strcmp(family, "mpich") == 0 ? "mpich libmpich-dev" : "openmpi-bin libopenmpi-dev";
}

/* No module of `family` (NULL: of any). */
static fo_status not_found(const fo_job *job, const char *family)
{
    char looked[LOOKED_BYTES], path[PATH_BYTES + 64];
    list_folders(looked, sizeof looked);
    if (!*FO_MPI_FAMILIES && !getenv("FLASHOVERLAP_MPI_DIR"))
        return fo_base_error(
            FO_UNSUPPORTED,
            "transport \"mpi\" was asked for, but no MPI library was there when this was "
            "built; install %s (tools/setup.sh mpi) and build again",
            packages_of(family ? family : "openmpi"));
    bool known = !family;
    for (int i = 0; i < FAMILIES && !known; i++)
        known = strcmp(families[i], family) == 0;
    if (!known)
        return fo_base_error(FO_INVALID, "FLASHOVERLAP_MPI is \"%s\", expected openmpi or mpich",
                             family);
    if (!family)
        return fo_base_error(FO_UNSUPPORTED, "no module libflashoverlap-mpi-*.so is in %s", looked);
    for (int i = 0; i < FAMILIES; i++)
        if (strcmp(families[i], family) != 0 && find_module(families[i], path, sizeof path))
            return fo_base_error(FO_UNSUPPORTED,
                                 "%s%sasks for libflashoverlap-mpi-%s.so, which is not in %s, only "
                                 "%s is: start with the %s, or "
                                 "install %s and build again",
                                 job->launched ? job->launcher : "",
                                 job->launched ? " " : "FLASHOVERLAP_MPI ", family, looked, path,
                                 launcher_of(families[i]), packages_of(family));
    return fo_base_error(FO_UNSUPPORTED,
                         "libflashoverlap-mpi-%s.so is not in %s; install %s and build again",
                         family, looked, packages_of(family));
}

static fo_status open_module(const char *path, const fo_mpi_shim **shim)
{
    /* global: plugins of Open MPI expect the library's own symbols there */
    void *module = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    if (!module)
        return fo_base_error(FO_UNSUPPORTED,
                             "%s can't be loaded: %s; is its MPI library installed?", path,
                             dlerror());
    const fo_mpi_shim *(*get)(void);
    *(void **)&get = dlsym(module, FO_MPI_SHIM_SYMBOL);
    const fo_mpi_shim *table = get ? get() : NULL;
    bool handles_fit = table && (table->request_bytes == 4 || table->request_bytes == 8);
    if (!handles_fit || table->version != FO_MPI_SHIM_VERSION)
        return fo_base_error(
            FO_UNSUPPORTED,
            "%s is of another version of this program (%d, expected %d); install both together",
            path, table ? table->version : 0, FO_MPI_SHIM_VERSION);
    *shim = table;
    return FO_OK;
}

fo_status fo_transport_mpi_load(const fo_mpi_shim **shim)
{
    static const fo_mpi_shim *loaded;
    char path[PATH_BYTES + 64];
    const char *family = getenv("FLASHOVERLAP_MPI");
    fo_job job;
    fo_job_get(&job);
    if (!family || !*family)
        family = job.mpi;
    for (int i = 0; !family && i < FAMILIES; i++) /* any one will do */
        if (find_module(families[i], path, sizeof path))
            family = families[i];
    if (!loaded) {
        if (!family || !find_module(family, path, sizeof path))
            return not_found(&job, family);
        fo_status status = open_module(path, &loaded);
        if (status != FO_OK)
            return status;
    }
    *shim = loaded;
    return FO_OK;
}

bool fo_transport_job_module(int index, char *path, size_t bytes)
{
    for (int i = 0; i < FAMILIES; i++)
        if (find_module(families[i], path, bytes) && index-- == 0)
            return true;
    return false;
}
