/* The version of the library. */
#ifndef FLASHOVERLAP_VERSION_H
#define FLASHOVERLAP_VERSION_H

#define FO_VERSION_MAJOR 0
#define FO_VERSION_MINOR 1
#define FO_VERSION_PATCH 0
#define FO_VERSION "0.1.0"

#endif
