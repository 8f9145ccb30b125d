/* What the executor keeps per task and per queue; shared by the files of this room only. */
#ifndef FO_EXEC_STATE_H
#define FO_EXEC_STATE_H

#include "exec/exec.h"

/* Progress of one task in one run. `ready` counts rows, from the task's first, that are finished and may
 * be used; for a SEND: that the receiver has finished with. */
typedef struct exec_task {
    int64_t ready;
    int32_t issued;    /* chunks posted */
    int32_t completed; /* chunks done, in order */
    int32_t released;  /* chunks of a view handed back */
    int32_t chunks;
    fo_request *requests;          /* [chunks], SEND and RECV */
    int32_t queue;                 /* SEND, RECV: the one it is in */
    int32_t waiters;               /* first queue whose next task waits for this one, -1: none */
    int32_t in_source, add_source; /* RECV whose rows `in` / `add` are, -1: plain memory */
    int32_t *readers;              /* RECV: tasks that read its rows */
    int32_t reader_count;
    int64_t waited_ns;
    int64_t seen_ns; /* recording: SEND: first message posted, RECV: first message seen; 0: not yet,
                        -1: the event is written */
} exec_task;

/* Tasks of one peer, direction and channel, in list order. */
typedef struct exec_queue {
    int32_t *tasks;
    int32_t count;
    int32_t next;    /* first that is not fully posted */
    int32_t oldest;  /* first that is not finished: a RECV also has to be handed back */
    int32_t arrived; /* RECV: first that has not arrived whole */
    bool send;
    bool deferred; /* sends of partial sums that are read in place: a run need not see their end */
    int32_t next_waiter; /* another queue that waits for the same task, -1: none */
    int32_t waited_for;  /* queues that wait for a task of this one: it is looked at */
    int32_t watched_at;  /* where in exec.watched */
} exec_queue;

struct fo_exec {
    fo_endpoint *endpoint;
    const fo_program *program;
    fo_exec_compute compute;
    fo_exec_prepare prepare;
    fo_exec_meanwhile meanwhile;
    const char *name;
    uint32_t tag;
    bool views;
    int64_t row_bytes[FO_BUFFER_ROLES];
    int64_t tile_rows[2];
    exec_task *tasks;
    fo_request *request_pool;
    int64_t request_count;
    int32_t *reader_pool;
    exec_queue *queues;
    int32_t *queue_pool;
    int32_t queue_count;
    int32_t *runnable; /* queues that may be able to post, first come first served: a ring */
    int32_t runnable_first, runnable_count;
    int32_t *watched, watched_count; /* queues that somebody waits for */
    int32_t *lane;                   /* COMPUTE, ADD, COPY in list order */
    int32_t lane_count;
    void **buffers; /* own memory by buffer, NULL for external roles */
    char *gather;   /* a tile whose rows do not lie together */
    void *gather_add;
    int64_t gather_bytes;
    /* of the run */
    void *external[FO_BUFFER_ROLES];
    void *context;
    int32_t at;          /* place in `lane` of the task being computed */
    int32_t waiting_for; /* SEND or RECV that the last wait was for, -1: it has ended */
    /* everywhere, since a wait has last ended: what ended it may be waited for by a peer, not here */
    bool looked;
    fo_status seen; /* of looks from inside a tile */
    int64_t last_progress_ns;
    int64_t movements;  /* messages posted, done or handed back so far */
    int32_t unfinished; /* communication tasks */
    bool broken;        /* a run failed: requests may be in flight for ever */
    uint32_t tiles;     /* since the executor was made */
    fo_exec_stats stats;
    /* of a run that was started */
    fo_background *background;
    fo_background_item item;
    bool started, ended;
    fo_status result; /* of what ended */
    /* of recording (record.c) */
    fo_recorder *const *recorder;
    int32_t record_name;
    int64_t executions;              /* since the executor was made */
    fo_event *open_tile, *open_wait; /* may be made longer */
    int32_t open_task;
};

/* exec.c */

/* Waits until nothing of the last run is in flight. */
fo_status fo_exec_settle(fo_exec *exec);
/* Begins a run: the first messages leave, then what is to be prepared is. */
fo_status fo_exec_open(fo_exec *exec, void *const external[FO_BUFFER_ROLES], void *context);
/* From the tile it has come to, to the end. */
fo_status fo_exec_complete(fo_exec *exec);
/* After the last tile or a failure; returns `status`, which fails the group unless it is FO_OK. */
fo_status fo_exec_shut(fo_exec *exec, fo_status status);
/* Rows of the next tile of a lane task. */
int64_t fo_exec_tile_rows(const fo_exec *exec, int32_t index);
/* Computes the next tile, whose rows are there, and looks at the messages. */
fo_status fo_exec_run_tile(fo_exec *exec, int32_t index, int64_t rows);

/* background.c: the callback of `item`. */
fo_status fo_exec_advance(void *arg, bool *moved);

/* record.c: does nothing when nobody records. `place`: the how manieth task of its queue. */
void fo_exec_record_begin(fo_exec *exec);
/* What is still in flight ends, for the record, with the run. */
void fo_exec_record_end(fo_exec *exec);
void fo_exec_record_tile(fo_exec *exec, int32_t index, int64_t rows, int64_t begin, int64_t end);
void fo_exec_record_wait(fo_exec *exec, int32_t index, int64_t begin, int64_t end);
void fo_exec_record_seen(fo_exec *exec, int32_t index);
void fo_exec_record_done(fo_exec *exec, int32_t index, int32_t place);

/* progress.c. Everything is done when something happens, not by looking everywhere: a queue whose next task
 * is blocked waits in the list of the task that blocks it; completions are looked for only where somebody
 * waits, or where the compute lane needs the rows now. So a task costs the same for any number of ranks. */

/* All queues may post, nothing has happened. */
void fo_exec_progress_rewind(fo_exec *exec);
/* Posts what can be posted, notes what has arrived where somebody waits for it; everywhere with `all`. */
fo_status fo_exec_progress_poll(fo_exec *exec, bool all);
/* Rows of lane task `index` were finished. */
void fo_exec_progress_advanced(fo_exec *exec, int32_t index);
/* Notes what has come of a SEND or RECV. */
fo_status fo_exec_progress_note(fo_exec *exec, int32_t index);
/* Address of global row `row` of the rows a task reads; *span: how many rows lie together from there. */
const void *fo_exec_progress_address(const fo_exec *exec, const fo_task *task, fo_ref ref,
                                     int32_t source, int64_t row, int64_t *span);
/* Memory of a buffer's row. */
char *fo_exec_progress_memory(const fo_exec *exec, fo_ref ref);
/* First dependency of `task` that does not yet allow its rows up to `end` (global), -1: none. */
int32_t fo_exec_progress_blocker(const fo_exec *exec, const fo_task *task, int64_t end);

#endif
