/* Runs random batches on a file, and prints what they did. In a batch no two iocbs overlap. */
#define _GNU_SOURCE
#include "aio.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NR_MAX = 24, NR_BLOCKS = 96 };

static uint64_t state;

static uint64_t below(uint64_t limit)
{
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % limit;
}

static uint64_t hash(uint64_t sum, const void *data, size_t len)
{
    for (size_t n = 0; n < len; n++)
        sum = (sum ^ ((const unsigned char *)data)[n]) * 1099511628211u;
    return sum;
}

int main(int argc, char **argv)
{
    void *context = NULL;
    uint64_t sum = 14695981039346656037u;
    char *memory = aligned_alloc(BLOCK, NR_BLOCKS * BLOCK);
    int fds[2], nr_rounds = 200;

    if (argc != 3)
        return 2;
    state = strtoull(argv[2], NULL, 10) * 2654435761u + 1;
    fds[0] = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    fds[1] = open(argv[1], O_RDWR | O_DIRECT);
    if (fds[0] < 0 || fds[1] < 0 || io_setup(NR_MAX, &context) != 0)
        return 3;
    for (int round = 0; round < nr_rounds; round++) {
        struct iocb iocbs[NR_MAX], *list[NR_MAX];
        struct iovec vectors[NR_MAX][2];
        struct event events[NR_MAX];
        int64_t results[NR_MAX];
        int nr = 1 + (int)below(NR_MAX), at = (int)below(8), nr_done = 0, next = 0;
        int writes = (int)below(2);

        if (writes) {
            for (size_t n = 0; n < NR_BLOCKS * BLOCK / sizeof state; n++)
                ((uint64_t *)(void *)memory)[n] = below(UINT64_MAX);
        } else {
            memset(memory, 0, NR_BLOCKS * BLOCK);
        }
        for (int n = 0; n < nr && at < NR_BLOCKS - 4; n++) {
            int len = 1 + (int)below(3), fd = fds[below(8) == 0], is_vector = below(4) == 0;
            char *buf = memory + at * BLOCK;
            memset(&iocbs[n], 0, sizeof iocbs[n]);
            vectors[n][0] = (struct iovec){ buf, BLOCK };
            vectors[n][1] = (struct iovec){ buf + BLOCK, (size_t)len * BLOCK };
            iocbs[n] = (struct iocb){
                .data = (uint64_t)n,
                .opcode = is_vector ? (writes ? PWRITEV : PREADV) : (writes ? PWRITE : PREAD),
                .fd = (uint32_t)fd,
                .buf = (uint64_t)(uintptr_t)(is_vector ? (void *)vectors[n] : buf),
                .nbytes = is_vector ? 2 : (uint64_t)len * BLOCK,
                .offset = (int64_t)at * BLOCK,
            };
            at += len + is_vector + (below(4) == 0 ? (int)below(4) : 0);
            next = n + 1;
        }
        /* The order in the list is not that of the offsets. */
        for (int n = 0; n < next; n++)
            list[n] = &iocbs[n];
        for (int n = 0; n + 1 < next; n++) {
            if (below(3) == 0) {
                struct iocb *other = list[n];
                list[n] = list[n + 1];
                list[n + 1] = other;
            }
        }
        if (io_submit(context, next, list) != next)
            return 4;
        while (nr_done < next) {
            int taken = io_getevents(context, 1, NR_MAX, events, NULL);
            if (taken < 0)
                return 5;
            for (int n = 0; n < taken; n++)
                results[events[n].data] = events[n].res;
            nr_done += taken;
        }
        sum = hash(sum, results, (size_t)next * sizeof results[0]);
        sum = hash(sum, memory, NR_BLOCKS * BLOCK);
        if (below(16) == 0 && ftruncate(fds[0], (off_t)below(NR_BLOCKS) * BLOCK) != 0)
            return 6;
    }
    printf("%llu, %lld bytes\n", (unsigned long long)sum, (long long)lseek(fds[0], 0, SEEK_END));
    return io_destroy(context);
}
