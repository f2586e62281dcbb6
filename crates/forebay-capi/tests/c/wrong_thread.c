/* A queue refuses every call of a thread that has not opened it, and works on afterwards. */
#include "check.h"

#include <pthread.h>

static struct forebay_disk *disk;
static struct forebay_queue *queue;
static char memory[4096];

static void *use_from_another_thread(void *unused)
{
    struct forebay_io io = read_of(memory, 4096, 0, 1);
    struct forebay_completion done[1];
    struct forebay_queue *own = open_queue(disk);

    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EPERM, "belongs to another thread");
    CHECK_FAILS(forebay_queue_reap(queue, done, 0, 1, 0), EPERM, "belongs to another thread");
    CHECK_FAILS(forebay_queue_fd(queue), EPERM, "belongs to another thread");
    CHECK_FAILS(forebay_queue_len(queue), EPERM, "belongs to another thread");
    CHECK_FAILS(forebay_queue_close(queue), EPERM, "belongs to another thread");
    CHECK_FAILS(forebay_unplug(), EINVAL, "no open plug");
    /* The disk is for all threads, and each may have queues. */
    CHECK(forebay_read(disk, memory, 512, 0) == 512);
    CHECK(forebay_queue_submit(own, &io, 1) == 1);
    CHECK(forebay_queue_reap(own, done, 1, 1, -1) == 1 && done[0].result == 4096);
    CHECK(forebay_queue_close(own) == 0);
    /* A plug that a thread leaves open ends with the thread. */
    CHECK(forebay_plug() == 0);
    return unused;
}

int main(void)
{
    struct forebay_io io = read_of(memory, 4096, 0, 1);
    struct forebay_completion done[1];
    pthread_t thread;

    disk = open_disk("ram:1M");
    queue = open_queue(disk);
    CHECK(forebay_plug() == 0);
    CHECK(pthread_create(&thread, NULL, use_from_another_thread, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    CHECK(strcmp(forebay_last_error(), "") == 0); /* the texts are those of the other thread */
    CHECK(forebay_unplug() == 0);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 4096);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
