/* A queue: batches merge, all operations and lists of buffers work, a full queue accepts a part. */
#include "check.h"

enum { DEPTH = 16, BLOCK = 4096 };

static char memory[DEPTH][BLOCK];
static struct forebay_completion done[DEPTH];

static void neighbours_of_one_call_merge(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io ios[DEPTH];

    for (int n = 0; n < DEPTH; n++)
        ios[n] = read_of(memory[n], BLOCK, n * BLOCK, 100 + n);
    CHECK(forebay_queue_submit(queue, ios, DEPTH) == DEPTH);
    CHECK(forebay_queue_len(queue) == DEPTH);
    CHECK(forebay_queue_reap(queue, done, DEPTH, DEPTH, -1) == DEPTH);
    for (int n = 0; n < DEPTH; n++)
        CHECK(done[n].user_data == 100 + (uint64_t)n && done[n].result == BLOCK);
    CHECK(forebay_queue_len(queue) == 0);
    CHECK(counter(disk, "issued") == 1);

    /* Under a plug, I/O of several calls merges too. */
    CHECK(forebay_plug() == 0);
    for (int n = 0; n < DEPTH; n++)
        CHECK(forebay_queue_submit(queue, &ios[n], 1) == 1);
    CHECK(counter(disk, "issued") == 1);
    CHECK(forebay_unplug() == 0);
    CHECK(counter(disk, "issued") == 2);
    CHECK(forebay_queue_reap(queue, done, 0, DEPTH, 0) == DEPTH);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
}

static void every_operation_ends_with_its_result(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    struct iovec iov[2] = {{memory[2], 1024}, {memory[3], 3072}};
    struct forebay_io ios[5] = {
        {.size = sizeof ios[0], .op = FOREBAY_OP_WRITE, .buf = memory[1], .len = BLOCK},
        {.size = sizeof ios[0], .op = FOREBAY_OP_FLUSH, .flags = FOREBAY_IO_FSYNC},
        {.size = sizeof ios[0], .op = FOREBAY_OP_DISCARD, .offset = 65536, .len = BLOCK},
        {.size = sizeof ios[0], .op = FOREBAY_OP_WRITE_ZEROES, .offset = 131072, .len = BLOCK},
        {.size = sizeof ios[0], .op = FOREBAY_OP_READ, .iov = iov, .iovcnt = 2, .len = BLOCK},
    };

    memset(memory[1], 9, BLOCK);
    /* The read must not pass the write, which is of the same range. */
    CHECK(forebay_queue_submit(queue, ios, 4) == 4);
    CHECK(forebay_queue_reap(queue, done, 4, DEPTH, -1) == 4);
    for (int n = 0; n < 4; n++)
        CHECK(done[n].result >= 0);
    for (int round = 0; round < 3; round++) {
        CHECK(forebay_queue_submit(queue, &ios[4], 1) == 1);
        CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == BLOCK);
    }
    CHECK(memory[2][0] == 9 && memory[2][1023] == 9 && memory[2][1024] == 0);
    CHECK(memory[3][3071] == 9 && memory[3][3072] == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
}

static void a_full_queue_accepts_a_part(void)
{
    struct forebay_disk *disk = open_disk("ram:1M?nr_bios=4");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io ios[6];

    for (int n = 0; n < 6; n++)
        ios[n] = read_of(memory[n], BLOCK, n * 2 * BLOCK, n);
    CHECK(forebay_queue_submit(queue, ios, 6) == 4);
    CHECK_FAILS(forebay_queue_submit(queue, ios + 4, 2), EAGAIN, "queue is full");
    CHECK(forebay_queue_reap(queue, done, 2, 2, -1) == 2);
    CHECK(forebay_queue_submit(queue, ios + 4, 2) == 2);
    CHECK(forebay_queue_reap(queue, done, 4, DEPTH, -1) == 4);
    CHECK(forebay_queue_reap(queue, done, 1, DEPTH, -1) == 0);
    /* An I/O behind the end of the disk: the ones before it are accepted. */
    ios[1].offset = 1 << 20;
    CHECK(forebay_queue_submit(queue, ios, 3) == 1);
    CHECK_FAILS(forebay_queue_submit(queue, ios + 1, 2), ENXIO, "out of range");
    CHECK(forebay_queue_reap(queue, done, 1, DEPTH, -1) == 1 && done[0].user_data == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
}

int main(void)
{
    neighbours_of_one_call_merge();
    every_operation_ends_with_its_result();
    a_full_queue_accepts_a_part();
    return 0;
}
