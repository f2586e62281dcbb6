/* Handles after close and of another kind are found, and an order of closing does not matter. */
#include "check.h"

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    static char memory[512];
    static uint64_t no_handle[64] = {1};
    struct forebay_io io = read_of(memory, 512, 0, 1);
    struct forebay_completion done[1];

    CHECK_FAILS(forebay_flush((struct forebay_disk *)(void *)queue), EINVAL, "that of a queue");
    CHECK_FAILS(forebay_queue_len((struct forebay_queue *)(void *)disk), EINVAL, "that of a disk");
    CHECK_FAILS(forebay_flush((struct forebay_disk *)(void *)no_handle), EINVAL, "not a handle");
    CHECK_FAILS(forebay_commit((struct forebay_group_commit *)(void *)disk), EINVAL,
                "expected a group commit");
    CHECK_FAILS(forebay_unplug(), EINVAL, "no open plug");

    /* The disk stays open for its queues. */
    CHECK(forebay_close(disk) == 0);
    CHECK_FAILS(forebay_close(disk), EBADF, "used after close");
    CHECK_FAILS(forebay_flush(disk), EBADF, "the disk is closed");
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 512);
    CHECK(forebay_queue_close(queue) == 0);
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EBADF, "the queue is closed");
    CHECK_FAILS(forebay_queue_close(queue), EBADF, "the queue is closed");

    /* Handles that are opened later do not take the place of the closed ones at once. */
    disk = open_disk("ram:1M");
    for (int n = 0; n < 100; n++)
        CHECK(forebay_queue_close(open_queue(disk)) == 0);
    CHECK_FAILS(forebay_queue_len(queue), EBADF, "the queue is closed");
    CHECK(forebay_close(disk) == 0);
    return 0;
}
