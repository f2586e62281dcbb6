/* I/O priorities: I/Os of different ones do not merge, and those that do not exist are refused. */
#include "check.h"

static char memory[2][512];

/* Submits two neighbours with these priorities, and returns the number of requests. */
static uint64_t requests(struct forebay_disk *disk, uint32_t first, uint32_t second)
{
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io ios[2] = {read_of(memory[0], 512, 0, 1), read_of(memory[1], 512, 512, 2)};
    struct forebay_completion done[2];
    uint64_t before = counter(disk, "issued");

    ios[0].priority = first;
    ios[1].priority = second;
    CHECK(forebay_queue_submit(queue, ios, 2) == 2);
    CHECK(forebay_queue_reap(queue, done, 2, 2, -1) == 2);
    CHECK(done[0].result == 512 && done[1].result == 512);
    CHECK(forebay_queue_close(queue) == 0);
    return counter(disk, "issued") - before;
}

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M?scheduler=mq-deadline");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io io = read_of(memory[0], 512, 0, 1);
    struct forebay_completion done;
    const uint32_t wrong[] = {
        4, FOREBAY_PRIORITY_IDLE + 8, FOREBAY_PRIORITY_IDLE + (1 << 13), 1 << 20, UINT32_MAX};

    CHECK(requests(disk, 0, 0) == 1);
    CHECK(requests(disk, 0, FOREBAY_PRIORITY_BEST_EFFORT + 4) == 1);
    CHECK(requests(disk, 0, FOREBAY_PRIORITY_BEST_EFFORT + 3) == 2);
    CHECK(requests(disk, FOREBAY_PRIORITY_REAL_TIME, FOREBAY_PRIORITY_REAL_TIME) == 1);
    CHECK(requests(disk, FOREBAY_PRIORITY_REAL_TIME, FOREBAY_PRIORITY_IDLE + 7) == 2);
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
        io.priority = wrong[n];
        CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "a level from 0 to 7");
    }
    io = (struct forebay_io){
        .size = sizeof io, .op = FOREBAY_OP_FLUSH, .priority = FOREBAY_PRIORITY_REAL_TIME};
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, &done, 1, 1, -1) == 1 && done.result == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
