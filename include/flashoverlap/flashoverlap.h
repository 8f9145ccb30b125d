/* FlashOverlap: everything public in one include. */
#ifndef FLASHOVERLAP_FLASHOVERLAP_H
#define FLASHOVERLAP_FLASHOVERLAP_H

#include "flashoverlap/bench.h"
#include "flashoverlap/calibrate.h"
#include "flashoverlap/group.h"
#include "flashoverlap/info.h"
#include "flashoverlap/job.h"
#include "flashoverlap/plan.h"
#include "flashoverlap/planner.h"
#include "flashoverlap/rows.h"
#include "flashoverlap/schedule.h"
#include "flashoverlap/search.h"
#include "flashoverlap/simulate.h"
#include "flashoverlap/status.h"
#include "flashoverlap/trace.h"
#include "flashoverlap/train.h"
#include "flashoverlap/version.h"

#endif
