/* Memory that is registered with a queue, where the disk can do it. */
#define _GNU_SOURCE
#include "check.h"

#include <unistd.h>

int main(int argc, char **argv)
{
    enum { LEN = 1 << 16 };
    char spec[512];
    struct forebay_completion done[1];
    uint64_t can = 0;
    void *memory = NULL;

    CHECK(argc == 2 && posix_memalign(&memory, 4096, LEN) == 0);
    struct forebay_disk *disk = open_disk("ram:1M");
    struct forebay_queue *queue = open_queue(disk);
    CHECK(forebay_info_number(disk, "registers_memory", &can) == 0 && can == 0);
    CHECK_FAILS(forebay_queue_register(queue, memory, LEN), EOPNOTSUPP, "cannot register memory");
    CHECK_FAILS(forebay_queue_register(NULL, memory, LEN), EINVAL, "queue is NULL");
    CHECK_FAILS(forebay_queue_register(queue, NULL, LEN), EINVAL, "memory is NULL");
    CHECK_FAILS(forebay_queue_register(queue, memory, 0), EINVAL, "0 bytes");
    CHECK_FAILS(forebay_queue_unregister(queue, 1), EINVAL, "no registration 1");
    CHECK_FAILS(forebay_queue_unregister(NULL, 1), EINVAL, "queue is NULL");
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);

    snprintf(spec, sizeof spec, "%s/disk.img", argv[1]);
    FILE *file = fopen(spec, "w");
    CHECK(file != NULL && ftruncate(fileno(file), LEN) == 0 && fclose(file) == 0);
    disk = open_disk(spec);
    queue = open_queue(disk);
    CHECK(forebay_info_number(disk, "registers_memory", &can) == 0);
    /* Without io_uring it cannot. The kernel may also refuse to lock so much memory. */
    int first = can ? forebay_queue_register(queue, memory, LEN) : -EOPNOTSUPP;
    if (first > 0) {
        struct forebay_io io = read_of(memory, 4096, 0, 1);
        io.op = FOREBAY_OP_WRITE;
        CHECK(forebay_queue_submit(queue, &io, 1) == 1);
        CHECK_FAILS(forebay_queue_unregister(queue, first), EBUSY, "reap it first");
        CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 4096);
        CHECK_FAILS(forebay_queue_unregister(queue, 0), EINVAL, "no registration 0");
        CHECK_FAILS(forebay_queue_unregister(queue, -1), EINVAL, "no registration -1");
        CHECK(forebay_queue_unregister(queue, first) == 0);
        CHECK_FAILS(forebay_queue_unregister(queue, first), EINVAL, "no registration");
        /* The number is used again, and a close ends the registration. */
        CHECK(forebay_queue_register(queue, memory, LEN) == first);
        CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    } else {
        CHECK(first == -EOPNOTSUPP || first == -ENOMEM);
    }
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    free(memory);
    return 0;
}
