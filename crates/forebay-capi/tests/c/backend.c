/* A disk on a back end of the program: data, ends from another thread, and ends that are wrong. */
#include "check.h"

#include <pthread.h>

enum { SIZE = 1 << 20, KEPT_MAX = 256 };

struct device {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    char data[SIZE];
    struct forebay_request *kept[KEPT_MAX];
    int nr_kept;
    bool is_ending, answers_at_once;
    int nr_closed, nr_flushes, nr_calls, nr_fua, nr_fsyncs;
    int64_t failure;
};

static struct device device = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .changed = PTHREAD_COND_INITIALIZER,
};

static void serve(struct forebay_request *request)
{
    int64_t offset = forebay_request_offset(request), len = forebay_request_len(request);
    int64_t moved = 0;

    switch (forebay_request_op(request)) {
    case FOREBAY_OP_READ:
        CHECK_FAILS(forebay_request_copy_to(request, 0, device.data, 1), EINVAL, "a read has no");
        CHECK_FAILS(forebay_request_copy_from(request, 1, device.data, (size_t)len), EINVAL,
                    "are more than");
        CHECK_FAILS(forebay_request_copy_from(request, 0, NULL, 1), EINVAL, "memory is NULL");
        CHECK(forebay_request_copy_from(request, 0, device.data + offset, (size_t)len) == 0);
        moved = len;
        break;
    case FOREBAY_OP_WRITE:
        CHECK_FAILS(forebay_request_copy_to(request, 0, (void *)(UINTPTR_MAX - 3), 8), EINVAL,
                    "no memory at");
        device.nr_fua += forebay_request_flags(request) == FOREBAY_IO_FUA;
        CHECK(forebay_request_copy_to(request, 0, device.data + offset, (size_t)len) == 0);
        moved = len;
        break;
    case FOREBAY_OP_FLUSH:
        CHECK(offset == 0 && len == 0);
        device.nr_fsyncs += (forebay_request_flags(request) & FOREBAY_IO_FSYNC) != 0;
        device.nr_flushes++;
        break;
    case FOREBAY_OP_WRITE_ZEROES:
        memset(device.data + offset, 0, (size_t)len);
        break;
    default:
        moved = -EOPNOTSUPP;
    }
    CHECK_FAILS(forebay_request_end(request, len + 1), EINVAL, "cannot move");
    CHECK(forebay_request_end(request, device.failure != 0 ? device.failure : moved) == 0);
    CHECK_FAILS(forebay_request_end(request, moved), EBADF, "ended already");
    CHECK_FAILS(forebay_request_len(request), EBADF, "ended already");
}

static void submit(void *context, struct forebay_request **requests, uint32_t nr)
{
    CHECK(context == &device && nr > 0);
    pthread_mutex_lock(&device.lock);
    device.nr_calls++;
    for (uint32_t n = 0; n < nr; n++) {
        if (device.answers_at_once) {
            serve(requests[n]);
        } else {
            CHECK(device.nr_kept < KEPT_MAX);
            device.kept[device.nr_kept++] = requests[n];
        }
    }
    pthread_cond_signal(&device.changed);
    pthread_mutex_unlock(&device.lock);
}

static void *serve_kept(void *unused)
{
    pthread_mutex_lock(&device.lock);
    while (!device.is_ending) {
        while (device.nr_kept > 0)
            serve(device.kept[--device.nr_kept]);
        pthread_cond_wait(&device.changed, &device.lock);
    }
    pthread_mutex_unlock(&device.lock);
    return unused;
}

static void close_device(void *context)
{
    CHECK(context == &device);
    device.nr_closed++;
}

static void use(struct forebay_disk *disk)
{
    enum { NR = 16 };
    static char out[4096], in[NR][512];
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io ios[NR];
    struct forebay_completion done[NR];

    memset(out, 7, sizeof out);
    memset(in, 0, sizeof in);
    CHECK(forebay_write(disk, out, sizeof out, 4096) == sizeof out);
    CHECK(forebay_write_zeroes(disk, 4096, 512) == 0);
    CHECK(forebay_flush(disk) == 0);
    for (int n = 0; n < NR; n++)
        ios[n] = read_of(in[n], 512, 4096 + 512 * n, n);
    CHECK(forebay_queue_submit(queue, ios, NR) == NR);
    CHECK(forebay_queue_reap(queue, done, NR, NR, -1) == NR);
    for (int n = 0; n < NR; n++)
        CHECK(done[n].result == 512);
    CHECK(in[0][0] == 0 && in[1][0] == 7 && in[7][511] == 7 && in[8][0] == 0);
    CHECK(forebay_queue_close(queue) == 0);
}

int main(void)
{
    struct forebay_backend table = {
        .size = sizeof table,
        .name = "memory",
        .context = &device,
        .capacity = SIZE,
        .submit = submit,
        .close = close_device,
        .max_write_zeroes = SIZE,
        .volatile_cache = 1,
    };
    struct forebay_disk *disk = NULL;
    pthread_t thread;
    char text[64];

    /* Tables that are wrong. */
    CHECK_FAILS(forebay_backend_open(NULL, &disk), EINVAL, "back end is NULL");
    CHECK_FAILS(forebay_backend_open(&table, NULL), EINVAL, "result is NULL");
    struct forebay_backend wrong = table;
    wrong.size = 8;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "sizeof(struct forebay_backend)");
    wrong = table;
    wrong.submit = NULL;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`submit` of the back end is NULL");
    wrong = table;
    wrong.fua = 2;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`fua`");
    wrong = table;
    wrong.reserved = 1;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`reserved`");
    wrong = table;
    wrong.settings = "queue_depth=none";
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "queue_depth=none: expected");
    wrong.settings = "direct=on";
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "unknown key `direct`");
    wrong.settings = "exclusive=on";
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "exclusive=on: expected off");
    wrong.settings = "queue_depth=4&nr_requests=5";
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "nr_requests");
    wrong = table;
    wrong.name = NULL;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "name of the back end is NULL");
    wrong = table;
    wrong.read_only = 7;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`read_only`");
    wrong = table;
    wrong.logical_block_size = 3;
    CHECK(forebay_backend_open(&wrong, &disk) == -EINVAL);
    wrong.logical_block_size = 8192;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`logical_block_size`");
    wrong = table;
    wrong.max_write_zeroes = 511;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`max_write_zeroes`");
    wrong.logical_block_size = 4096;
    wrong.max_write_zeroes = 0;
    wrong.max_discard = 4095;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`max_discard`");
    wrong = table;
    wrong.capacity = (uint64_t)INT64_MAX + 1;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`capacity`");
    wrong.capacity = 0;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "`capacity`");
    wrong.capacity = SIZE + 1;
    CHECK_FAILS(forebay_backend_open(&wrong, &disk), EINVAL, "blocks of 512 bytes");
    CHECK(device.nr_closed == 0 && disk == NULL);
    CHECK_FAILS(forebay_request_end(NULL, 0), EINVAL, "request is NULL");
    CHECK_FAILS(forebay_request_op(NULL), EINVAL, "request is NULL");
    CHECK_FAILS(forebay_request_offset(NULL), EINVAL, "request is NULL");

    /* Requests that end inside `submit`, in one call for each batch. */
    device.answers_at_once = true;
    CHECK(forebay_backend_open(&table, &disk) == 0);
    CHECK(forebay_info(disk, "spec", text, sizeof text) > 0);
    CHECK(strcmp(text, "backend:memory") == 0);
    use(disk);
    CHECK(device.nr_flushes == 1 && device.nr_calls == 4);
    device.failure = -ENOSPC;
    static char block[512];
    CHECK_FAILS(forebay_write(disk, block, 512, 0), ENOSPC, "no space");
    device.failure = 0;
    CHECK_FAILS(forebay_discard(disk, 0, 512), EOPNOTSUPP, "does not support discard");
    CHECK(forebay_close(disk) == 0 && device.nr_closed == 1);

    /* A durable write reaches a back end with FUA as one request. */
    table.fua = 1;
    table.settings = "queue_depth=16&service=on";
    uint64_t depth = 0;
    char service[8];
    CHECK(forebay_backend_open(&table, &disk) == 0);
    CHECK(forebay_info_number(disk, "queue_depth", &depth) == 0 && depth == 16);
    CHECK(forebay_info(disk, "service", service, sizeof service) >= 0);
    CHECK(strcmp(service, "1") == 0);
    int nr_flushes = device.nr_flushes;
    CHECK(forebay_write_durable(disk, block, 512, 0) == 512);
    CHECK(device.nr_flushes == nr_flushes && device.nr_fua == 1);
    CHECK(forebay_write(disk, block, 512, 0) == 512 && forebay_fsync(disk) == 0);
    CHECK(device.nr_fua == 1 && device.nr_fsyncs == 1);
    CHECK(forebay_close(disk) == 0 && device.nr_closed == 2);
    table.fua = 0;
    table.settings = NULL;

    /* Requests that end do not let a closed disk be forgotten. */
    struct forebay_disk *closed = disk;
    CHECK(forebay_backend_open(&table, &disk) == 0);
    for (int n = 0; n < 1000; n++)
        CHECK(forebay_read(disk, block, 512, 0) == 512);
    CHECK_FAILS(forebay_flush(closed), EBADF, "the disk is closed");
    CHECK(forebay_close(disk) == 0 && device.nr_closed == 3);

    /* Requests that another thread ends. */
    device.answers_at_once = false;
    CHECK(pthread_create(&thread, NULL, serve_kept, NULL) == 0);
    CHECK(forebay_backend_open(&table, &disk) == 0);
    use(disk);
    CHECK(forebay_close(disk) == 0 && device.nr_closed == 4);
    pthread_mutex_lock(&device.lock);
    device.is_ending = true;
    pthread_cond_signal(&device.changed);
    pthread_mutex_unlock(&device.lock);
    CHECK(pthread_join(thread, NULL) == 0);
    return 0;
}
