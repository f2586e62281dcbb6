/* The size of an I/O: too small and odd ones are refused, a larger one may only have zeroes. */
#include "check.h"

/* An I/O of a later version. */
struct later_io {
    struct forebay_io io;
    uint64_t later;
};

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    static char memory[2][512];
    struct forebay_io io = read_of(memory[0], 512, 0, 1);
    struct later_io later[2] = {
        {.io = read_of(memory[0], 512, 0, 1)},
        {.io = read_of(memory[1], 512, 4096, 2)},
    };
    struct forebay_completion done[2];
    const uint32_t wrong[] = {0, 1, 48, 60, sizeof io + 4, UINT32_MAX};

    CHECK(sizeof io == 64 && sizeof done[0] == 64);
    for (size_t n = 0; n < sizeof wrong / sizeof wrong[0]; n++) {
        io.size = wrong[n];
        CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "sizeof(struct forebay_io)");
    }
    /* The size of the first version, which had no priority: its bytes are another program's. */
    io.size = 56;
    io.priority = 0xffffffff;
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1);
    CHECK(done[0].user_data == 1 && done[0].result == 512);
    later[0].io.size = later[1].io.size = sizeof later[0];
    CHECK(forebay_queue_submit(queue, &later[0].io, 2) == 2);
    CHECK(forebay_queue_reap(queue, done, 2, 2, -1) == 2);
    CHECK(done[0].user_data == 1 && done[1].user_data == 2 && done[1].result == 512);
    later[0].later = 1;
    CHECK_FAILS(forebay_queue_submit(queue, &later[0].io, 1), E2BIG, "a later version");
    /* Lengths that no memory has. */
    io = read_of(memory[0], UINT64_MAX, 0, 1);
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "no memory at");
    struct iovec iov[2] = {{memory[0], 512}, {memory[1], SIZE_MAX}};
    CHECK_FAILS(forebay_readv(disk, iov, 2, 0), EINVAL, "no memory at");
    io = (struct forebay_io){.size = sizeof io, .iov = iov, .iovcnt = 1, .len = 1024};
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "have 512 bytes, but len is 1024");
    io.buf = memory[0];
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "either buf or iov");
    CHECK(forebay_queue_len(queue) == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
