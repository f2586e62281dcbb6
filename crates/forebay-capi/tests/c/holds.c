/* Frozen and quiesced disks, and holds that are released in any order. */
#define _GNU_SOURCE
#include "check.h"

#include <pthread.h>
#include <unistd.h>

static struct forebay_disk *disk;

static void *release_later(void *hold)
{
    usleep(50000);
    CHECK(forebay_release(hold) == 0);
    return NULL;
}

int main(void)
{
    disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_hold *frozen = NULL, *other = NULL;
    static char memory[512];
    struct forebay_io io = read_of(memory, 512, 0, 1);
    struct forebay_completion done[1];
    pthread_t thread;

    CHECK_FAILS(forebay_freeze(NULL, 0, &frozen), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_freeze(disk, 0, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_quiesce(NULL, &frozen), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_release(NULL), EINVAL, "hold is NULL");
    CHECK_FAILS(forebay_release((void *)disk), EINVAL, "that of a disk");

    /* I/O waits until both holds are released. */
    CHECK(forebay_freeze(disk, -1, &frozen) == 0 && forebay_freeze(disk, 1000, &other) == 0);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, 20) == 0);
    CHECK(forebay_release(frozen) == 0);
    CHECK_FAILS(forebay_release(frozen), EBADF, "the hold is closed");
    CHECK(forebay_queue_reap(queue, done, 1, 1, 20) == 0);
    CHECK(forebay_release(other) == 0);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 512);

    /* A thread that waits for its I/O goes on when another one releases the hold. */
    CHECK(forebay_freeze(disk, -1, &frozen) == 0);
    CHECK(pthread_create(&thread, NULL, release_later, frozen) == 0);
    CHECK(forebay_read(disk, memory, 512, 0) == 512);
    CHECK(pthread_join(thread, NULL) == 0);

    /* A quiesced disk with admitted I/O cannot be frozen. */
    CHECK(forebay_quiesce(disk, &other) == 0);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK_FAILS(forebay_freeze(disk, 1000, &frozen), EBUSY, "quiesced");
    CHECK(forebay_release(other) == 0);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 512);

    /* Neither can a stopped one. */
    CHECK_FAILS(forebay_stop(NULL, &other), EINVAL, "disk is NULL");
    CHECK(forebay_stop(disk, &other) == 0);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, 20) == 0);
    CHECK_FAILS(forebay_freeze(disk, 1000, &frozen), EBUSY, "stopped");
    CHECK(forebay_release(other) == 0);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 512);

    /* A hold outlives the handle of its disk. */
    CHECK(forebay_quiesce(disk, &other) == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    CHECK(forebay_release(other) == 0);

    /* A freeze has a time limit. */
    disk = open_disk("ram:1M?req_ns=200000000");
    queue = open_queue(disk);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK_FAILS(forebay_freeze(disk, 1, &frozen), ETIMEDOUT, "not ended");
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
