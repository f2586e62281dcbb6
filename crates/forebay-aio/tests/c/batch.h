/* Batches of iocbs, and files with known blocks. */
#define _GNU_SOURCE
#include "aio.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* Ends the program if a call that must succeed has failed. */
#define MUST(call)                                                                  \
    do {                                                                            \
        if (!(call)) {                                                              \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #call, strerror(errno));  \
            exit(3);                                                                \
        }                                                                           \
    } while (0)

/* A batch: iocbs for neighbouring blocks, and their memory. */
enum { NR_MAX = 32 };
struct batch {
    struct iocb iocbs[NR_MAX];
    struct iocb *list[NR_MAX];
    int nr;
    char *memory;
};

static inline void show(const char *what, long result)
{
    printf("%s: %ld\n", what, result);
    fflush(stdout);
}

/* Fills a block with its number and a seed, so that no two blocks are equal. */
static inline void stamp(char *memory, long block, long seed)
{
    for (size_t n = 0; n < BLOCK / sizeof(uint64_t); n++)
        ((uint64_t *)(void *)memory)[n] =
            ((uint64_t)seed << 48 | (uint64_t)block << 16) + n;
}

/* Returns the number of blocks that lack the stamp. */
static inline int nr_wrong(const char *memory, long block, int nr, long seed)
{
    char expected[BLOCK];
    int wrong = 0;

    for (int n = 0; n < nr; n++) {
        stamp(expected, block + n, seed);
        wrong += memcmp(memory + n * BLOCK, expected, BLOCK) != 0;
    }
    return wrong;
}

/* Returns a batch of neighbours from a block on. Its memory is stamped for writes, and else zero. */
static inline struct batch *batch_of(int opcode, int fd, long block, int nr, long seed)
{
    struct batch *batch = calloc(1, sizeof *batch);

    MUST(batch != NULL && nr <= NR_MAX);
    batch->nr = nr;
    batch->memory = aligned_alloc(BLOCK, (size_t)nr * BLOCK);
    MUST(batch->memory != NULL);
    memset(batch->memory, 0, (size_t)nr * BLOCK);
    for (int n = 0; n < nr; n++) {
        char *memory = batch->memory + n * BLOCK;
        if (opcode == PWRITE)
            stamp(memory, block + n, seed);
        batch->iocbs[n] = (struct iocb){ .data = (uint64_t)n, .opcode = (uint16_t)opcode,
                                         .fd = (uint32_t)fd, .buf = (uint64_t)(uintptr_t)memory,
                                         .nbytes = BLOCK, .offset = (block + n) * BLOCK };
        batch->list[n] = &batch->iocbs[n];
    }
    return batch;
}

static inline void batch_free(struct batch *batch)
{
    free(batch->memory);
    free(batch);
}

/* Takes the events of nr iocbs. Returns how many have another result than a block. */
static inline int reap(void *context, int nr)
{
    struct event events[NR_MAX];
    int wrong = 0;

    while (nr > 0) {
        int taken = io_getevents(context, 1, nr < NR_MAX ? nr : NR_MAX, events, NULL);
        if (taken == -EINTR)
            continue;
        MUST(taken > 0);
        for (int n = 0; n < taken; n++)
            wrong += events[n].res != BLOCK;
        nr -= taken;
    }
    return wrong;
}

/* Creates a file with stamped blocks. */
static inline void make_file(const char *path, int nr_blocks, long seed)
{
    char block[BLOCK];
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);

    MUST(fd >= 0);
    for (int n = 0; n < nr_blocks; n++) {
        stamp(block, n, seed);
        MUST(write(fd, block, BLOCK) == BLOCK);
    }
    MUST(fsync(fd) == 0 && close(fd) == 0);
}

/* Returns the number of blocks of a file that lack the stamp. */
static inline int nr_wrong_in(const char *path, int nr_blocks, long seed)
{
    char block[BLOCK];
    int fd = open(path, O_RDONLY), wrong = 0;

    MUST(fd >= 0);
    for (int n = 0; n < nr_blocks; n++)
        wrong += read(fd, block, BLOCK) != BLOCK || nr_wrong(block, n, 1, seed) != 0;
    close(fd);
    return wrong;
}
