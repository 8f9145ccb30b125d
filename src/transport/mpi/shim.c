/* The only file that sees mpi.h: see shim.h. */
#include "transport/mpi/shim.h"

#include <mpi.h>
#include <string.h>

#include "base/bf16.h"

#if defined(OPEN_MPI)
#define FAMILY "openmpi"
#define TEXT_OF(x) #x
#define TEXT(x) TEXT_OF(x)
#define NAME \
    "Open MPI " TEXT(OMPI_MAJOR_VERSION) "." TEXT(OMPI_MINOR_VERSION) "." TEXT(OMPI_RELEASE_VERSION)
#elif defined(MPICH_VERSION)
#define FAMILY "mpich"
#define NAME "MPICH " MPICH_VERSION
#else
#define FAMILY "mpi"
#define NAME "an MPI library"
#endif

/* A message of more bytes than an int counts is made of blocks of this size. */
#define BLOCK (1 << 30)
#define MOST_BYTES ((uint64_t)BLOCK * INT32_MAX)
enum { SOME = 64 }; /* requests a call of MPI_Testsome looks at */

_Static_assert(sizeof(MPI_Comm) <= sizeof(uint64_t), "a communicator fits a word");
_Static_assert(sizeof(MPI_Request) <= FO_MPI_REQUEST_MOST, "a request fits its place");

static MPI_Op add_bf16 = MPI_OP_NULL;

static MPI_Comm comm_of(uint64_t word)
{
    MPI_Comm comm;
    memcpy(&comm, &word, sizeof comm);
    return comm;
}

static uint64_t word_of(MPI_Comm comm)
{
    uint64_t word = 0;
    memcpy(&word, &comm, sizeof comm);
    return word;
}

/* ---- the job --------------------------------------------------------------------------------------- */

/* Adds in float32 and rounds once. */
static void add_bf16_elements(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const fo_bf16 *a = in;
    fo_bf16 *b = inout;
    (void)type;
    for (int i = 0; i < *count; i++)
        b[i] = fo_base_bf16_from_f32(fo_base_bf16_to_f32(a[i]) + fo_base_bf16_to_f32(b[i]));
}

static int shim_init(fo_mpi_job *job)
{
    int begun = 0, provided, found = 0, code = MPI_Initialized(&begun);
    int *most = NULL;
    MPI_Comm world;
    if (code == MPI_SUCCESS && !begun)
        code = MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &provided);
    if (code != MPI_SUCCESS)
        return code;
    job->own = !begun;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN); /* what belongs to no communicator */
    MPI_Comm_rank(MPI_COMM_WORLD, &job->rank);
    MPI_Comm_size(MPI_COMM_WORLD, &job->size);
    code = MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &most, &found);
    job->tag_most = found ? *most : 32767;
    if (code == MPI_SUCCESS)
        code = MPI_Op_create(add_bf16_elements, 1, &add_bf16);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(MPI_COMM_WORLD, &world);
    if (code == MPI_SUCCESS)
        job->world = word_of(world);
    return code;
}

static int shim_finalize(void)
{
    MPI_Op_free(&add_bf16);
    return MPI_Finalize();
}

static void shim_abort(int code)
{
    MPI_Abort(MPI_COMM_WORLD, code);
}

static void shim_explain(int error, char *text, int bytes)
{
    char full[MPI_MAX_ERROR_STRING + 1] = "";
    int length = 0;
    if (MPI_Error_string(error, full, &length) != MPI_SUCCESS)
        length = 0;
    if (length > bytes - 1)
        length = bytes - 1;
    memcpy(text, full, (size_t)length);
    text[length] = 0;
}

static int shim_dup(uint64_t comm, uint64_t *copy)
{
    MPI_Comm made;
    int code = MPI_Comm_dup(comm_of(comm), &made);
    if (code == MPI_SUCCESS)
        *copy = word_of(made);
    return code;
}

static int shim_group(uint64_t comm, const int *members, int count, int tag, uint64_t *sub)
{
    MPI_Group all, some = MPI_GROUP_NULL;
    MPI_Comm made;
    int code = MPI_Comm_group(comm_of(comm), &all);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Group_incl(all, count, members, &some);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_create_group(comm_of(comm), some, tag, &made);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        *sub = word_of(made);
    if (some != MPI_GROUP_NULL)
        MPI_Group_free(&some);
    MPI_Group_free(&all);
    return code;
}

static int shim_release(uint64_t word)
{
    MPI_Comm comm = comm_of(word);
    return MPI_Comm_free(&comm);
}

/* ---- messages -------------------------------------------------------------------------------------- */

/* A type of `bytes` bytes in a row: blocks, then what is left. Both ends agree in bytes, not in blocks. */
static int large_type(uint64_t bytes, MPI_Datatype *type)
{
    MPI_Datatype block, parts[2] = {MPI_DATATYPE_NULL, MPI_BYTE};
    int lengths[2] = {1, (int)(bytes % BLOCK)};
    MPI_Aint offsets[2] = {0, (MPI_Aint)(bytes - bytes % BLOCK)};
    if (bytes > MOST_BYTES)
        return MPI_ERR_COUNT;
    int code = MPI_Type_contiguous(BLOCK, MPI_BYTE, &block);
    if (code != MPI_SUCCESS)
        return code;
    code = MPI_Type_contiguous((int)(bytes / BLOCK), block, &parts[0]);
    if (code == MPI_SUCCESS) {
        code = MPI_Type_create_struct(2, lengths, offsets, parts, type);
        MPI_Type_free(&parts[0]);
    }
    MPI_Type_free(&block);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

typedef int (*post_send)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
typedef int (*post_recv)(void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);

/* Apart from the short way, which they would make longer. */
static __attribute__((noinline)) int send_large(post_send call, uint64_t comm, const void *data,
                                                uint64_t bytes, int peer, int tag, void *request)
{
    MPI_Datatype type;
    int code = large_type(bytes, &type);
    if (code != MPI_SUCCESS)
        return code;
    code = call(data, 1, type, peer, tag, comm_of(comm), request);
    MPI_Type_free(&type); /* kept by the library while it is used */
    return code;
}

static __attribute__((noinline)) int recv_large(post_recv call, uint64_t comm, void *buffer,
                                                uint64_t bytes, int peer, int tag, void *request)
{
    MPI_Datatype type;
    int code = large_type(bytes, &type);
    if (code != MPI_SUCCESS)
        return code;
    code = call(buffer, 1, type, peer, tag, comm_of(comm), request);
    MPI_Type_free(&type);
    return code;
}

static inline int send_by(post_send call, uint64_t comm, const void *data, uint64_t bytes, int peer,
                          int tag, void *request)
{
    if (bytes > INT32_MAX)
        return send_large(call, comm, data, bytes, peer, tag, request);
    return call(data, (int)bytes, MPI_BYTE, peer, tag, comm_of(comm), request);
}

static inline int recv_by(post_recv call, uint64_t comm, void *buffer, uint64_t bytes, int peer,
                          int tag, void *request)
{
    if (bytes > INT32_MAX)
        return recv_large(call, comm, buffer, bytes, peer, tag, request);
    return call(buffer, (int)bytes, MPI_BYTE, peer, tag, comm_of(comm), request);
}

static int shim_isend(const void *data, uint64_t bytes, uint64_t none, int peer, int tag,
                      uint64_t comm, void *request)
{
    (void)none;
    return send_by(MPI_Isend, comm, data, bytes, peer, tag, request);
}

static int shim_irecv(void *buffer, uint64_t bytes, uint64_t none, int peer, int tag, uint64_t comm,
                      void *request)
{
    (void)none;
    return recv_by(MPI_Irecv, comm, buffer, bytes, peer, tag, request);
}

static int shim_send_init(uint64_t comm, const void *data, uint64_t bytes, int peer, int tag,
                          void *request)
{
    return send_by(MPI_Send_init, comm, data, bytes, peer, tag, request);
}

static int shim_recv_init(uint64_t comm, void *buffer, uint64_t bytes, int peer, int tag,
                          void *request)
{
    return recv_by(MPI_Recv_init, comm, buffer, bytes, peer, tag, request);
}

static int shim_start(void *request)
{
    return MPI_Start(request);
}

static int shim_drop(void *request)
{
    return MPI_Request_free(request);
}

static int shim_cancel(void *request)
{
    return MPI_Cancel(request);
}

/* Bytes received. The question costs as much as the rest of a small message, hence the look inside. */
static uint64_t bytes_of(const MPI_Status *status)
{
#if defined(OPEN_MPI)
    return status->_ucount;
#elif defined(MPICH_VERSION)
    return (uint64_t)(unsigned)(status->count_hi_and_cancelled >> 1) << 32 |
           (unsigned)status->count_lo;
#else
    MPI_Count bytes = 0;
    int code = MPI_Get_elements_x(status, MPI_BYTE, &bytes);
    return code == MPI_SUCCESS && bytes > 0 ? (uint64_t)bytes : 0;
#endif
}

static void note_result(int error, MPI_Status *status, fo_mpi_result *result)
{
    int kind = MPI_SUCCESS;
    if (error != MPI_SUCCESS)
        MPI_Error_class(error, &kind);
    result->truncated = kind == MPI_ERR_TRUNCATE;
    result->error = result->truncated ? MPI_SUCCESS : error;
    result->bytes = bytes_of(status);
}

/* MPI_Test of MPICH moves messages for a request that is done, too: as long as a small message takes. This one looks
 * first, and a wait for what is done returns at once. */
static inline int look(MPI_Request *request, int *flag, MPI_Status *status)
{
#if defined(MPICH_VERSION)
    int code = MPI_Request_get_status(*request, flag, MPI_STATUS_IGNORE);
    return *flag ? MPI_Wait(request, status) : code;
#else
    return MPI_Test(request, flag, status);
#endif
}

static int shim_test(void *request, bool receives, int looks, bool *done, fo_mpi_result *result)
{
    MPI_Status status, *asked = receives ? &status : MPI_STATUS_IGNORE;
    int flag = 0, code = MPI_SUCCESS;
    while (!flag && code == MPI_SUCCESS && looks-- > 0)
        code = look(request, &flag, asked);
    *done = flag || code != MPI_SUCCESS;
    if (*done && receives)
        note_result(code, &status, result);
    else if (*done)
        *result = (fo_mpi_result){.error = code};
    return MPI_SUCCESS;
}

static int shim_test_some(int count, void *requests, int most, int *done, int *places,
                          fo_mpi_result *results)
{
    MPI_Status statuses[SOME];
    int kind = MPI_SUCCESS;
    *done = 0;
    for (int first = 0; first < count && *done + SOME <= most; first += SOME) {
        int number = 0, here = count - first < SOME ? count - first : SOME;
        int code =
            MPI_Testsome(here, (MPI_Request *)requests + first, &number, places + *done, statuses);
        if (code != MPI_SUCCESS)
            MPI_Error_class(code, &kind);
        if (code != MPI_SUCCESS && kind != MPI_ERR_IN_STATUS)
            return code;
        for (int i = 0; i < number && number != MPI_UNDEFINED; i++, (*done)++) {
            places[*done] += first;
            note_result(code != MPI_SUCCESS ? statuses[i].MPI_ERROR : MPI_SUCCESS, &statuses[i],
                        &results[*done]);
        }
    }
    return MPI_SUCCESS;
}

static int shim_poll(uint64_t comm)
{
    int found;
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_of(comm), &found, MPI_STATUS_IGNORE);
}

/* ---- collectives ------------------------------------------------------------------------------------ */

static int shim_iallgather(uint64_t comm, const void *mine, int bytes, void *all, void *request)
{
    return MPI_Iallgather(mine, bytes, MPI_BYTE, all, bytes, MPI_BYTE, comm_of(comm), request);
}

static int shim_ibarrier(uint64_t comm, void *request)
{
    return MPI_Ibarrier(comm_of(comm), request);
}

static int gather(MPI_Comm comm, const fo_mpi_collective *w, MPI_Datatype type,
                  MPI_Request *request)
{
    if (w->blocking && !w->counts)
        return MPI_Allgather(w->send, w->count, type, w->recv, w->count, type, comm);
    if (w->blocking)
        return MPI_Allgatherv(w->send, w->count, type, w->recv, w->counts, w->offsets, type, comm);
    if (!w->counts)
        return MPI_Iallgather(w->send, w->count, type, w->recv, w->count, type, comm, request);
    return MPI_Iallgatherv(w->send, w->count, type, w->recv, w->counts, w->offsets, type, comm,
                           request);
}

static int shim_collective(uint64_t word, const fo_mpi_collective *w, void *request)
{
    MPI_Comm comm = comm_of(word);
    MPI_Datatype type = w->bf16 ? MPI_UINT16_T : MPI_FLOAT;
    MPI_Op op = w->bf16 ? add_bf16 : MPI_SUM;
    if (!w->reduce_scatter)
        return gather(comm, w, type, request);
    if (w->blocking && !w->counts)
        return MPI_Reduce_scatter_block(w->send, w->recv, w->count, type, op, comm);
    if (w->blocking)
        return MPI_Reduce_scatter(w->send, w->recv, w->counts, type, op, comm);
    if (!w->counts)
        return MPI_Ireduce_scatter_block(w->send, w->recv, w->count, type, op, comm, request);
    return MPI_Ireduce_scatter(w->send, w->recv, w->counts, type, op, comm, request);
}

static const fo_mpi_shim shim = {
    .version = FO_MPI_SHIM_VERSION,
    .family = FAMILY,
    .name = NAME,
    .request_bytes = sizeof(MPI_Request),
    .init = shim_init,
    .finalize = shim_finalize,
    .abort = shim_abort,
    .explain = shim_explain,
    .dup = shim_dup,
    .group = shim_group,
    .release = shim_release,
    .isend = shim_isend,
    .irecv = shim_irecv,
    .send_init = shim_send_init,
    .recv_init = shim_recv_init,
    .start = shim_start,
    .drop = shim_drop,
    .cancel = shim_cancel,
    .test = shim_test,
    .test_some = shim_test_some,
    .poll = shim_poll,
    .iallgather = shim_iallgather,
    .ibarrier = shim_ibarrier,
    .collective = shim_collective,
};

const fo_mpi_shim *fo_mpi_shim_get(void)
{
    return &shim;
}
