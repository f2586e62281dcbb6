/* Closing a disk or a group commit while another call uses it frees nothing under that call. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <unistd.h>

enum { BLOCK = 512 };

struct device {
    struct forebay_disk *disk;
    /* Close the disk inside `submit`, or keep the request. */
    bool closes_in_submit;
    struct forebay_request *_Atomic kept;
    int nr_closed;
};

static void submit(void *context, struct forebay_request **requests, uint32_t nr)
{
    struct device *device = context;
    int nr_closed = device->nr_closed;

    CHECK(nr == 1);
    if (!device->closes_in_submit) {
        device->kept = requests[0];
        return;
    }
    CHECK(forebay_close(device->disk) == 0);
    CHECK_FAILS(forebay_flush(device->disk), EBADF, "the disk is closed");
    CHECK(device->nr_closed == nr_closed);
    CHECK(forebay_request_end(requests[0], BLOCK) == 0);
}

static void close_device(void *context)
{
    struct device *device = context;

    device->nr_closed++;
}

static void open_device(struct device *device)
{
    struct forebay_backend table = {
        .size = sizeof table,
        .name = "closing",
        .context = device,
        .capacity = 1 << 20,
        .submit = submit,
        .close = close_device,
    };

    CHECK(forebay_backend_open(&table, &device->disk) == 0);
}

static void *read_block(void *context)
{
    struct device *device = context;
    char block[BLOCK];

    CHECK(forebay_read(device->disk, block, BLOCK, 0) == BLOCK);
    return NULL;
}

static void *commit_until_closed(void *commit)
{
    int result;

    do
        result = forebay_commit(commit);
    while (result == 0);
    CHECK(result == -EBADF);
    return NULL;
}

int main(void)
{
    struct device device = {.closes_in_submit = false};
    pthread_t thread;
    static char block[BLOCK];

    /* During a call of another thread. */
    open_device(&device);
    CHECK(pthread_create(&thread, NULL, read_block, &device) == 0);
    while (device.kept == NULL)
        usleep(1000);
    CHECK(forebay_close(device.disk) == 0);
    CHECK_FAILS(forebay_close(device.disk), EBADF, "the disk is closed");
    CHECK_FAILS(forebay_read(device.disk, block, BLOCK, 0), EBADF, "the disk is closed");
    usleep(20000);
    CHECK(device.nr_closed == 0);
    CHECK(forebay_request_end(device.kept, BLOCK) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(device.nr_closed == 1);

    /* In `submit`, for a blocking call. */
    device.closes_in_submit = true;
    open_device(&device);
    CHECK(forebay_read(device.disk, block, BLOCK, 0) == BLOCK);
    CHECK(device.nr_closed == 2);

    /* In `submit`, for a queue. */
    open_device(&device);
    struct forebay_queue *queue = open_queue(device.disk);
    struct forebay_io io = read_of(block, BLOCK, 0, 1);
    struct forebay_completion done[1];
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == BLOCK);
    CHECK(device.nr_closed == 2);
    CHECK(forebay_queue_close(queue) == 0);
    CHECK(device.nr_closed == 3);

    /* In `submit`, at the end of a plug. */
    open_device(&device);
    queue = open_queue(device.disk);
    CHECK(forebay_plug() == 0 && forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_unplug() == 0);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == BLOCK);
    CHECK(forebay_queue_close(queue) == 0 && device.nr_closed == 4);

    /* A group commit. */
    struct forebay_group_commit *commit = NULL;
    FILE *file = tmpfile();
    CHECK(file != NULL && forebay_commit_open(fileno(file), FOREBAY_SYNC_DATA, &commit) == 0);
    CHECK(pthread_create(&thread, NULL, commit_until_closed, commit) == 0);
    usleep(20000);
    CHECK(forebay_commit_close(commit) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK_FAILS(forebay_commit(commit), EBADF, "the group commit is closed");
    fclose(file);
    return 0;
}
