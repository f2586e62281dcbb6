/* Checks of the C programs: the first one that fails ends the program. */
#ifndef CHECK_H
#define CHECK_H

#include <errno.h>
#include <forebay.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                                        \
    do {                                                                                        \
        if (!(condition)) {                                                                     \
            fprintf(stderr, "%s:%d: not true: %s; last error: %s\n", __FILE__, __LINE__,        \
                    #condition, forebay_last_error());                                          \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

/* The call fails with this errno, and the text has these words. */
#define CHECK_FAILS(call, number, words)                                                        \
    do {                                                                                        \
        int64_t result_ = (call);                                                               \
        if (result_ != -(number) || strstr(forebay_last_error(), words) == NULL) {              \
            fprintf(stderr, "%s:%d: %s: %" PRId64 ", expected %d; last error: %s, expected %s\n", \
                    __FILE__, __LINE__, #call, result_, -(number), forebay_last_error(), words); \
            exit(1);                                                                            \
        }                                                                                       \
    } while (0)

static inline struct forebay_disk *open_disk(const char *spec)
{
    struct forebay_disk *disk = NULL;
    CHECK(forebay_open(spec, &disk) == 0);
    return disk;
}

static inline struct forebay_queue *open_queue(struct forebay_disk *disk)
{
    struct forebay_queue *queue = NULL;
    CHECK(forebay_queue_open(disk, &queue) == 0);
    return queue;
}

static inline struct forebay_io read_of(void *buf, uint64_t len, uint64_t offset, uint64_t number)
{
    struct forebay_io io = {
        .size = sizeof io,
        .op = FOREBAY_OP_READ,
        .buf = buf,
        .len = len,
        .offset = offset,
        .user_data = number,
    };
    return io;
}

static inline uint64_t counter(struct forebay_disk *disk, const char *name)
{
    uint64_t value = 0;
    CHECK(forebay_stats_get(disk, name, &value) == 0);
    return value;
}

#endif
