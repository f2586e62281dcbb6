/* NULL in the place of each argument is -EINVAL, with a text that names it. So is a wrong place. */
#include "check.h"

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_disk *no_disk = NULL;
    struct forebay_queue *no_queue = NULL;
    struct forebay_group_commit *no_commit = NULL;
    struct forebay_io io = read_of(NULL, 512, 0, 0);
    struct forebay_completion done[1];
    uint64_t number = 0;
    char text[8];

    CHECK_FAILS(forebay_open(NULL, &no_disk), EINVAL, "spec is NULL");
    CHECK_FAILS(forebay_open("ram:1M", NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_close(NULL), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_read(NULL, text, 8, 0), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_read(disk, NULL, 512, 0), EINVAL, "memory is NULL");
    CHECK_FAILS(forebay_write(disk, NULL, 512, 0), EINVAL, "memory is NULL");
    CHECK_FAILS(forebay_write_durable(disk, NULL, 512, 0), EINVAL, "memory is NULL");
    /* Memory that wraps around the end of the address space. */
    void *last = (void *)(UINTPTR_MAX - 511);
    struct iovec wrapping = {.iov_base = last, .iov_len = 1024};
    CHECK_FAILS(forebay_read(disk, last, 512, 0), EINVAL, "no memory at");
    CHECK_FAILS(forebay_write(disk, last, 1024, 0), EINVAL, "no memory at");
    CHECK_FAILS(forebay_write(disk, text, (size_t)1 << 63, 0), EINVAL, "no memory at");
    CHECK_FAILS(forebay_readv(disk, &wrapping, 1, 0), EINVAL, "no memory at");
    io = read_of(last, 512, 0, 0);
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "no memory at");
    io = read_of(NULL, 512, 0, 0);
    CHECK_FAILS(forebay_readv(disk, NULL, 1, 0), EINVAL, "iov is NULL");
    CHECK_FAILS(forebay_writev(disk, NULL, 1, 0), EINVAL, "iov is NULL");
    CHECK_FAILS(forebay_writev(disk, NULL, 5000, 0), EINVAL, "more than 1024");
    CHECK_FAILS(forebay_flush(NULL), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_fsync(NULL), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_discard(NULL, 0, 512), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_write_zeroes(NULL, 0, 512), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_capacity(disk, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_grow(NULL), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_revive(NULL), EINVAL, "disk is NULL");

    CHECK_FAILS(forebay_queue_open(NULL, &no_queue), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_queue_open(disk, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_queue_close(NULL), EINVAL, "queue is NULL");
    CHECK_FAILS(forebay_queue_submit(NULL, &io, 1), EINVAL, "queue is NULL");
    CHECK_FAILS(forebay_queue_submit(queue, NULL, 1), EINVAL, "array of I/O is NULL");
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "memory is NULL");
    io.iovcnt = 1;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "iov is NULL");
    CHECK(forebay_queue_submit(queue, NULL, 0) == 0);
    CHECK_FAILS(forebay_queue_reap(queue, NULL, 0, 1, 0), EINVAL, "completions is NULL");
    CHECK_FAILS(forebay_queue_reap(queue, done, 2, 1, 0), EINVAL, "more than max");
    CHECK(forebay_queue_reap(queue, NULL, 0, 0, 0) == 0);
    CHECK_FAILS(forebay_queue_fd(NULL), EINVAL, "queue is NULL");
    CHECK_FAILS(forebay_queue_len(NULL), EINVAL, "queue is NULL");

    CHECK_FAILS(forebay_durable_point(disk, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_durable_wait(NULL, 0), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_durable_test(NULL, 0), EINVAL, "disk is NULL");
    CHECK(forebay_lost_writes(disk, NULL, NULL) == 0);
    CHECK(forebay_acknowledge_loss(disk, NULL, NULL) == 0);
    CHECK_FAILS(forebay_lost_writes(NULL, NULL, NULL), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_acknowledge_loss(NULL, NULL, NULL), EINVAL, "disk is NULL");

    CHECK_FAILS(forebay_commit_open(0, FOREBAY_SYNC_DATA, NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_commit_open(-1, FOREBAY_SYNC_DATA, &no_commit), EBADF, "-1 is not");
    CHECK_FAILS(forebay_commit_close(NULL), EINVAL, "group commit is NULL");
    CHECK_FAILS(forebay_commit(NULL), EINVAL, "group commit is NULL");
    CHECK_FAILS(forebay_commit_since(NULL, 0), EINVAL, "group commit is NULL");
    CHECK_FAILS(forebay_commit_point(NULL, &number), EINVAL, "group commit is NULL");
    CHECK_FAILS(forebay_commit_acknowledge_loss(NULL), EINVAL, "group commit is NULL");
    CHECK_FAILS(forebay_commit_stats(NULL, NULL, NULL, NULL), EINVAL, "group commit is NULL");

    CHECK_FAILS(forebay_stats_get(disk, NULL, &number), EINVAL, "name is NULL");
    CHECK_FAILS(forebay_stats_get(disk, "issued", NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_stats_read(disk, NULL, 1), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_info(disk, NULL, text, 8), EINVAL, "name is NULL");
    CHECK_FAILS(forebay_info(disk, "driver", NULL, 8), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_info_number(disk, "capacity", NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_insight_openmetrics(NULL, 8), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_insight_diskstats(NULL, 8), EINVAL, "result is NULL");

    /* Places that are not for their type. */
    void *odd = (char *)done + 1;
    CHECK_FAILS(forebay_open("ram:1M", odd), EINVAL, "result is misaligned");
    CHECK_FAILS(forebay_capacity(disk, odd), EINVAL, "result is misaligned");
    CHECK_FAILS(forebay_stats_read(disk, odd, 1), EINVAL, "result is misaligned");
    CHECK_FAILS(forebay_acknowledge_loss(disk, NULL, odd), EINVAL, "result is misaligned");
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
