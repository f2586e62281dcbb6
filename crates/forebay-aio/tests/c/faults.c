/* Batches, single reads and syncs on a file or device some of whose blocks fail. Prints the result
 * of each iocb, and checks the data of each block that a result counts. */
#include "batch.h"
#include <sys/uio.h>

enum { NR_BLOCKS_MAX = 1024, NR_ROUNDS = 60, BATCH_MAX = 24, LEN_MAX = 4, NR_CELLS = 2 };

/* An iocb for blocks next to each other, and its result. */
struct item {
    struct iocb iocb;
    struct iovec vectors[LEN_MAX];
    long block;
    int nr;
    char *memory;
    long result;
};

/* The seed of the last write of a block; UNKNOWN if a write has failed. */
enum { UNKNOWN = -1, ZERO = 0 };
static long seeds[NR_BLOCKS_MAX];
static int nr_blocks, fd;
static uint64_t state;
static void *context;
static long nr_wrong_blocks, nr_checked;

static int below(int limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return (int)(state % (uint64_t)limit);
}

static int is_write(const struct item *item)
{
    return item->iocb.opcode == PWRITE || item->iocb.opcode == PWRITEV;
}

/* Returns whether memory has the bytes of a block. */
static int is_right(const char *memory, long block, size_t len)
{
    char expected[BLOCK];

    memset(expected, 0, BLOCK);
    if (seeds[block] != ZERO)
        stamp(expected, block, seeds[block]);
    return memcmp(memory, expected, len) == 0;
}

/* Prepares an iocb. Its memory is stamped for a write. */
static void prepare(struct item *item, int opcode, long block, int nr, char *memory, long seed)
{
    int is_vector = opcode == PREADV || opcode == PWRITEV;

    item->block = block;
    item->nr = nr;
    item->memory = memory;
    item->result = -1000;
    for (int n = 0; n < nr; n++) {
        char *part = memory + n * BLOCK;
        item->vectors[n] = (struct iovec){ part, BLOCK };
        if (opcode == PWRITE || opcode == PWRITEV)
            stamp(part, block + n, seed);
        else
            memset(part, 0xee, BLOCK);
    }
    item->iocb = (struct iocb){ .data = (uint64_t)(uintptr_t)item, .opcode = (uint16_t)opcode,
                                .fd = (uint32_t)fd, .offset = block * BLOCK,
                                .buf = (uint64_t)(uintptr_t)(is_vector ? (void *)item->vectors
                                                                       : memory),
                                .nbytes = (uint64_t)(is_vector ? nr : nr * BLOCK) };
}

/* Prepares a sync. */
static void prepare_sync(struct item *item, int opcode)
{
    item->nr = 0;
    item->result = -1000;
    item->iocb = (struct iocb){ .data = (uint64_t)(uintptr_t)item, .opcode = (uint16_t)opcode,
                                .fd = (uint32_t)fd };
}

/* Takes the events of nr iocbs. */
static void take(int nr)
{
    struct event events[NR_MAX];

    while (nr > 0) {
        int taken = io_getevents(context, 1, nr < NR_MAX ? nr : NR_MAX, events, NULL);
        MUST(taken > 0);
        for (int n = 0; n < taken; n++) {
            struct item *item = (struct item *)(uintptr_t)events[n].data;
            MUST((uint64_t)(uintptr_t)&item->iocb == events[n].obj && item->result == -1000);
            item->result = events[n].res;
        }
        nr -= taken;
    }
}

/* Prints the results of iocbs, and checks their data. */
static void judge(const struct item *items, int nr, long seed)
{
    static const char *names[] = { "read", "write", "fsync", "fdsync", "", "", "", "readv",
                                   "writev" };

    for (int n = 0; n < nr; n++) {
        const struct item *item = &items[n];
        long left = item->result;

        printf(" %s", names[item->iocb.opcode]);
        if (item->nr > 0)
            printf(" %ld+%d", item->block, item->nr);
        printf(" = %ld\n", item->result);
        for (int part = 0; part < item->nr; part++, left -= BLOCK) {
            long block = item->block + part;
            size_t len = left >= BLOCK ? BLOCK : left > 0 ? (size_t)left : 0;
            if (block >= nr_blocks)
                continue;
            if (is_write(item)) {
                seeds[block] = len == BLOCK ? seed : UNKNOWN;
            } else if (seeds[block] != UNKNOWN && len > 0) {
                nr_wrong_blocks += !is_right(item->memory + part * BLOCK, block, len);
                nr_checked++;
            }
        }
    }
    fflush(stdout);
}

/* Fills a list with iocbs of a batch between two blocks. Returns how many. */
static int random_batch(struct item *items, int is_writing, long from, long end, char *memory,
                        long seed)
{
    int nr = 0, max = 2 + below(BATCH_MAX - 2);

    while (nr < max && from + LEN_MAX <= end) {
        int len = 1 + below(3) * below(2), is_vector = below(4) == 0;
        int opcode = is_writing ? is_vector ? PWRITEV : PWRITE : is_vector ? PREADV : PREAD;
        prepare(&items[nr], opcode, from, len, memory + nr * LEN_MAX * BLOCK, seed);
        from += len + (below(6) == 0 ? below(4) : 0);
        nr++;
    }
    if (nr < max && below(3) == 0)
        prepare_sync(&items[nr++], below(2) ? FSYNC : FDSYNC);
    return nr;
}

/* Submits iocbs, some of them in another order than that of their blocks. */
static void submit(struct item *items, int nr)
{
    struct iocb *list[BATCH_MAX];

    for (int n = 0; n < nr; n++)
        list[n] = &items[n].iocb;
    for (int n = 0; n + 1 < nr; n++) {
        if (below(4) == 0) {
            struct iocb *other = list[n];
            list[n] = list[n + 1];
            list[n + 1] = other;
        }
    }
    MUST(io_submit(context, nr, list) == nr);
}

/* Two batches in flight, one in each half. */
static void batches(struct item *items, char *memory)
{
    for (int round = 1; round <= NR_ROUNDS; round++) {
        int nr[NR_CELLS], sum = 0;

        for (int cell = 0; cell < NR_CELLS; cell++) {
            long from = nr_blocks / NR_CELLS * cell, size = nr_blocks / NR_CELLS;
            long skip = below((int)size / 2);
            char *part = memory + (size_t)cell * BATCH_MAX * LEN_MAX * BLOCK;
            nr[cell] = random_batch(items + cell * BATCH_MAX, below(2), from + skip, from + size,
                                    part, round);
            submit(items + cell * BATCH_MAX, nr[cell]);
            sum += nr[cell];
            /* The results of two syncs at once depend on the order in which they run. */
            if (cell == 0 && items[nr[0] - 1].nr == 0) {
                take(sum);
                sum = 0;
            }
        }
        take(sum);
        printf("round %d\n", round);
        for (int cell = 0; cell < NR_CELLS; cell++)
            judge(items + cell * BATCH_MAX, nr[cell], round);
    }
}

/* Reads all blocks one by one in order, also beyond the end, with many reads in flight. */
static void stream(struct item *items, char *memory, int opcode, int nr_at_once)
{
    int nr = nr_blocks + 8;

    printf("stream of %d\n", nr_at_once);
    for (int n = 0; n < nr; n++) {
        struct iocb *one = &items[n].iocb;

        if (n >= nr_at_once)
            take(1);
        prepare(&items[n], opcode, n, 1, memory + (size_t)n * BLOCK, 0);
        MUST(io_submit(context, 1, &one) == 1);
    }
    take(nr < nr_at_once ? nr : nr_at_once);
    judge(items, nr, 0);
}

/* A sync beside a batch of writes. */
static void syncs(struct item *items, char *memory)
{
    printf("syncs\n");
    for (int round = 0; round < 6; round++) {
        long seed = NR_ROUNDS + 1 + round;
        int nr = random_batch(items, 1, 0, nr_blocks / 2, memory, seed);
        struct iocb *one = &items[nr].iocb;

        if (items[nr - 1].nr == 0)
            nr--, one = &items[nr].iocb;
        submit(items, nr);
        prepare_sync(&items[nr], round % 2 ? FDSYNC : FSYNC);
        MUST(io_submit(context, 1, &one) == 1);
        take(nr + 1);
        judge(items, nr + 1, seed);
    }
}

/* Reads each block alone, and checks those whose content is defined. */
static void read_all(char *memory)
{
    long nr_failed = 0, nr_known = 0, wrong = 0;

    for (long block = 0; block < nr_blocks; block++) {
        ssize_t len = pread(fd, memory, BLOCK, block * BLOCK);
        nr_failed += len != BLOCK;
        if (len == BLOCK && seeds[block] != UNKNOWN) {
            nr_known++;
            wrong += !is_right(memory, block, BLOCK);
        }
    }
    printf("at the end: %ld of %d blocks fail, %ld of %ld are wrong\n", nr_failed, nr_blocks, wrong,
           nr_known);
}

int main(int argc, char **argv)
{
    struct item *items = calloc(NR_BLOCKS_MAX + 8, sizeof *items);
    char *memory = aligned_alloc(BLOCK, (size_t)(NR_BLOCKS_MAX + 8) * BLOCK);

    if (argc != 3)
        return 2;
    MUST(items != NULL && memory != NULL);
    state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
    fd = open(argv[1], O_RDWR | O_DIRECT);
    MUST(fd >= 0);
    nr_blocks = (int)(lseek(fd, 0, SEEK_END) / BLOCK);
    MUST(nr_blocks >= 64 && nr_blocks <= NR_BLOCKS_MAX);
    MUST(io_setup(2 * BATCH_MAX + 2 * NR_MAX, &context) == 0);
    /* The file is zero at first, as far as it can be written. */
    batches(items, memory);
    stream(items, memory, PREAD, 32);
    stream(items, memory, PREADV, 64);
    stream(items, memory, PREAD, 3);
    syncs(items, memory);
    printf("%ld of %ld blocks are wrong\n", nr_wrong_blocks, nr_checked);
    read_all(memory);
    MUST(io_destroy(context) == 0);
    return 0;
}
