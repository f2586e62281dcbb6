/*
 * A program in the style of libblkio: requests on a queue, completions by way of its descriptor.
 *
 *   blkio_create, blkio_connect, blkio_start   forebay_open, forebay_queue_open
 *   blkioq_read, blkioq_write, ...             an array of struct forebay_io, and
 *                                              forebay_queue_submit
 *   blkioq_get_completion_fd                   forebay_queue_fd
 *   blkioq_do_io                               forebay_queue_reap
 *   blkio_get_error_msg                        forebay_last_error
 *
 * There are no memory regions to map: any memory that fits the disk's alignment may be used.
 */
#include <forebay.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 64, BLOCK = 4096, DEPTH = 16 };

static void check(int result, const char *call)
{
    if (result < 0) {
        fprintf(stderr, "%s: %s: %s\n", call, strerror(-result), forebay_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const char *spec = argc > 2 ? argv[2] : "ram:1M?req_ns=10000";
    struct forebay_disk *disk;
    struct forebay_queue *queue;
    char *memory = aligned_alloc(BLOCK, (size_t)DEPTH * BLOCK);

    check(forebay_open(spec, &disk), "forebay_open");
    check(forebay_queue_open(disk, &queue), "forebay_queue_open");
    struct pollfd polled = {.fd = forebay_queue_fd(queue), .events = POLLIN};
    check(polled.fd, "forebay_queue_fd");

    int started = 0, ended = 0;
    char *idle[DEPTH];
    int nr_idle = DEPTH;
    for (int n = 0; n < DEPTH; n++)
        idle[n] = memory + (size_t)n * BLOCK;

    while (ended < BLOCKS) {
        /* All that can be started goes to the disk with one call, and neighbours merge. */
        struct forebay_io ios[DEPTH];
        int nr = 0;
        while (nr_idle > 0 && started < BLOCKS) {
            char *buf = idle[--nr_idle];
            ios[nr++] = (struct forebay_io){
                .size = sizeof ios[0],
                .op = FOREBAY_OP_READ,
                .buf = buf,
                .len = BLOCK,
                .offset = (uint64_t)started++ * BLOCK,
                .user_data = (uint64_t)(uintptr_t)buf,
            };
        }
        check(forebay_queue_submit(queue, ios, (uint32_t)nr), "forebay_queue_submit");

        poll(&polled, 1, -1);
        struct forebay_completion done[DEPTH];
        nr = forebay_queue_reap(queue, done, 0, DEPTH, 0);
        check(nr, "forebay_queue_reap");
        for (int n = 0; n < nr; n++) {
            check((int)done[n].result, "read");
            idle[nr_idle++] = (char *)(uintptr_t)done[n].user_data;
        }
        ended += nr;
    }
    printf("%d blocks read\n", ended);
    check(forebay_queue_close(queue), "forebay_queue_close");
    check(forebay_close(disk), "forebay_close");
    free(memory);
    return 0;
}
