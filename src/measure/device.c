/* Devices as text: what --emulate says, and the heads of tables. */
#include "flashoverlap/calibrate.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define EXAMPLE "271TF,launch=5us,mem=1.5TB/s,curve=64:0.33/256:0.78/8192:0.92"

enum { TEXT = 1024 };

typedef struct unit {
    const char *name;
    double factor;
} unit;

static const unit rates[] = {{"PF", 1e15}, {"TF", 1e12}, {"GF", 1e9}, {"MF", 1e6}, {NULL, 0}};
static const unit times[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {NULL, 0}};
static const unit speeds[] = {{"TB/s", 1e12}, {"GB/s", 1e9}, {"MB/s", 1e6}, {NULL, 0}};

/* ---- reading --------------------------------------------------------------------------------------- */

static bool number(const char *text, char **end, double *value)
{
    *value = strtod(text, end);
    return isdigit((unsigned char)*text) && isfinite(*value);
}

/* A number and one of the units, and nothing behind it. */
static bool with_unit(const char *text, const unit *units, double *value)
{
    char *end;
    if (!number(text, &end, value))
        return false;
    for (; units->name; units++)
        if (!strcmp(end, units->name)) {
            *value *= units->factor;
            return true;
        }
    return false;
}

static fo_status bad(const char *found, const char *expected)
{
    return fo_base_error(FO_INVALID,
                         "device: found '%s', expected %s; a device is written as in %s, or with "
                         "the time of the whole computation in front, as in 78.5ms,launch=5us",
                         found, expected, EXAMPLE);
}

static fo_status read_speed(const char *text, fo_device *device, double *compute_s)
{
    double value;
    if (with_unit(text, rates, &value) && value > 0) {
        device->flops_per_s = value;
        return FO_OK;
    }
    if (!compute_s)
        return bad(text, "a rate above 0 in MF, GF, TF or PF");
    if (!with_unit(text, times, &value) || !(value > 0))
        return bad(text,
                   "a rate above 0 in MF, GF, TF or PF, or a time above 0 in s, ms, us or ns");
    *compute_s = value;
    return FO_OK;
}

static fo_status read_curve(char *text, fo_device *device)
{
    device->points = 0;
    while (text) {
        char *point = strsep(&text, "/"), *end;
        int at = device->points;
        double rows, efficiency;
        if (at == FO_DEVICE_POINTS)
            return bad(point, "a curve of at most 24 points");
        if (!number(point, &end, &rows) || *end != ':' || !number(end + 1, &end, &efficiency) ||
            *end)
            return bad(point, "a point of the curve such as 256:0.78, points separated by '/'");
        if (rows < 1 || (at && rows <= device->rows[at - 1]))
            return bad(point, "rows of 1 or more that ascend from point to point");
        if (!(efficiency > 0 && efficiency <= 1))
            return bad(point, "an efficiency above 0 and up to 1");
        device->rows[at] = rows;
        device->efficiency[at] = efficiency;
        device->points++;
    }
    return FO_OK;
}

static fo_status read_detail(char *text, fo_device *device)
{
    if (!strncmp(text, "launch=", 7))
        return with_unit(text + 7, times, &device->launch_s) && device->launch_s <= 60
                   ? FO_OK
                   : bad(text, "a time of up to 60 s, such as launch=5us");
    if (!strncmp(text, "mem=", 4))
        return with_unit(text + 4, speeds, &device->bytes_per_s) && device->bytes_per_s > 0
                   ? FO_OK
                   : bad(text, "a speed above 0 in MB/s, GB/s or TB/s, such as mem=1.5TB/s");
    if (!strncmp(text, "curve=", 6))
        return read_curve(text + 6, device);
    return bad(text, "launch=, mem= or curve=");
}

fo_status fo_device_parse(const char *text, fo_device *device, double *compute_s)
{
    char copy[TEXT];
    fo_device read = {0};
    double time = 0;
    if (strlen(text) >= sizeof copy)
        return fo_base_error(FO_INVALID, "device: a text of %zu bytes, expected at most %d",
                             strlen(text), TEXT - 1);
    strcpy(copy, text);
    char *rest = copy;
    fo_status status = read_speed(strsep(&rest, ","), &read, compute_s ? &time : NULL);
    while (status == FO_OK && rest)
        status = read_detail(strsep(&rest, ","), &read);
    if (status != FO_OK)
        return status;
    *device = read;
    if (compute_s)
        *compute_s = time;
    return FO_OK;
}

/* ---- printing -------------------------------------------------------------------------------------- */

/* Appends "name", the number in the largest unit that is not above it, and the unit. */
static void append(char *text, size_t size, const char *name, double value, const unit *units)
{
    size_t used = strlen(text);
    const unit *fits = units;
    while (fits[1].name && value < fits->factor)
        fits++;
    snprintf(text + used, size - used, "%s%.6g%s", name, value / fits->factor, fits->name);
}

void fo_device_print(const fo_device *device, char *text, size_t size)
{
    if (!size)
        return;
    text[0] = '\0';
    if (!(device->flops_per_s > 0)) {
        snprintf(text, size, "none");
        return;
    }
    append(text, size, "", device->flops_per_s, rates);
    if (device->launch_s > 0)
        append(text, size, ",launch=", device->launch_s, times);
    if (device->bytes_per_s > 0)
        append(text, size, ",mem=", device->bytes_per_s, speeds);
    for (int i = 0; i < device->points; i++) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, "%s%.6g:%.6g", i ? "/" : ",curve=", device->rows[i],
                 device->efficiency[i]);
    }
}
