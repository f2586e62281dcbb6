/* The functions and structures of libaio, as the tests use them. */
#ifndef AIO_H
#define AIO_H

#include <signal.h>
#include <stdint.h>
#include <time.h>

struct iocb {
    uint64_t data;
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    uint32_t key;
    int32_t rw_flags;
#else
    int32_t rw_flags;
    uint32_t key;
#endif
    uint16_t opcode;
    int16_t reqprio;
    uint32_t fd;
    uint64_t buf, nbytes;
    int64_t offset;
    uint64_t reserved2;
    uint32_t flags, resfd;
};

struct event {
    uint64_t data, obj;
    int64_t res, res2;
};

enum { PREAD, PWRITE, FSYNC, FDSYNC, POLL = 5, NOOP, PREADV, PWRITEV };
enum { BLOCK = 4096, RESFD = 1 };

int io_setup(int nr, void **context);
int io_destroy(void *context);
int io_submit(void *context, long nr, struct iocb **list);
int io_getevents(void *context, long min, long max, struct event *events, struct timespec *timeout);
int io_pgetevents(void *context, long min, long max, struct event *events,
                  struct timespec *timeout, sigset_t *mask);
int io_cancel(void *context, struct iocb *iocb, struct event *event);
int io_queue_init(int nr, void **context);
int io_queue_release(void *context);
int io_queue_run(void *context);

/* The head of the ring of events, to which a handle of a context points. */
struct ring {
    uint32_t id, nr, head, tail, magic;
};

#endif
