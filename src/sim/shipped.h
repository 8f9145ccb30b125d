/* The profiles of the folder profiles/, as text in the library; made by the build (cmake/profiles.cmake). */
#ifndef FO_SIM_SHIPPED_H
#define FO_SIM_SHIPPED_H

extern const char *const fo_sim_shipped_names[]; /* by alphabet, NULL after the last */
extern const char *const fo_sim_shipped_texts[];

#endif
