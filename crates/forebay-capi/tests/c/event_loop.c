/* The descriptor of a queue becomes readable when a reap is due, and a reap waits no longer than
 * asked. */
#include "check.h"

#include <poll.h>
#include <time.h>

static uint64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

int main(void)
{
    /* 50 ms for each request. */
    struct forebay_disk *disk = open_disk("ram:1M?req_ns=50000000");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_completion done[2];
    static char memory[2][4096];
    struct forebay_io ios[2];
    int nr = 0, loops = 0;

    ios[0] = read_of(memory[0], 4096, 0, 1);
    ios[1] = read_of(memory[1], 4096, 65536, 2);
    struct pollfd polled = {.fd = forebay_queue_fd(queue), .events = POLLIN};
    CHECK(polled.fd >= 0);
    CHECK(poll(&polled, 1, 0) == 1); /* readable at first */
    CHECK(forebay_queue_reap(queue, done, 0, 2, 0) == 0);
    CHECK(forebay_queue_submit(queue, ios, 2) == 2);
    while (nr < 2) {
        CHECK(poll(&polled, 1, 10000) == 1);
        int got = forebay_queue_reap(queue, done + nr, 0, 2 - nr, 0);
        CHECK(got >= 0 && ++loops < 50);
        nr += got;
    }
    CHECK(done[0].user_data == 1 && done[1].user_data == 2);

    CHECK(forebay_queue_submit(queue, ios, 2) == 2);
    uint64_t start = now_ms();
    CHECK(forebay_queue_reap(queue, done, 2, 2, 1) < 2);
    CHECK(now_ms() - start < 45);
    CHECK(forebay_queue_reap(queue, done, 0, 0, -1) == 0);
    int rest = forebay_queue_len(queue);
    CHECK(forebay_queue_reap(queue, done, rest, 2, 10000) == rest);
    CHECK(now_ms() - start >= 90);
    /* Nothing is in flight, so there is nothing to wait for. */
    start = now_ms();
    CHECK(forebay_queue_reap(queue, done, 1, 2, 10000) == 0);
    CHECK(now_ms() - start < 5000);
    /* A wait with a limit issues what is in a plug. */
    CHECK(forebay_plug() == 0);
    CHECK(forebay_queue_submit(queue, ios, 1) == 1);
    start = now_ms();
    CHECK(forebay_queue_reap(queue, done, 1, 2, 10000) == 1);
    CHECK(now_ms() - start < 5000);
    CHECK(forebay_unplug() == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
