/* Numbers that no enum has, and flags that an operation does not have, are refused. */
#include "check.h"

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_group_commit *commit = NULL;
    static char memory[512];
    struct forebay_io io = read_of(memory, 512, 0, 1);

    io.op = 5;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "operation 5");
    io.op = UINT32_MAX;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "operation 4294967295");
    io.op = FOREBAY_OP_READ;
    io.flags = 1 << 20;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "a read has no flags 0x100000");
    io.flags = FOREBAY_IO_FUA | FOREBAY_IO_NOMERGE;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "a read has no flags 0x1");
    io.op = FOREBAY_OP_FLUSH;
    io.flags = 0;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "a flush has no memory");
    io = (struct forebay_io){.size = sizeof io, .op = FOREBAY_OP_FLUSH, .offset = 512};
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "FOREBAY_IO_UP_TO");
    io.offset = 0;
    io.len = 512;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "length 0");
    io.op = FOREBAY_OP_DISCARD;
    io.flags = FOREBAY_IO_FSYNC;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "a discard has no flags 0x40");
    CHECK_FAILS(forebay_commit_open(0, 2, &commit), EINVAL, "2 is not in enum forebay_sync");
    CHECK(commit == NULL && forebay_queue_len(queue) == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
