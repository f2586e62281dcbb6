/* Several contexts on one file, and several threads on one context: each iocb ends exactly once. */
#include "batch.h"
#include <pthread.h>
#include <stdatomic.h>

enum { NR_CONTEXTS = 6, NR_THREADS = 6, NR = 8, NR_BLOCKS = 64 };

static void *shared;
static int fd, nr_rounds = 150;

/* An iocb of a thread, and how often it has ended. */
struct item {
    struct iocb iocb;
    atomic_int nr_ends;
};

static atomic_long nr_taken, nr_wrong_results;

static void take(struct event *events, int nr)
{
    for (int n = 0; n < nr; n++) {
        struct item *item = (struct item *)(uintptr_t)events[n].data;

        if ((uint64_t)(uintptr_t)&item->iocb != events[n].obj || events[n].res != BLOCK)
            atomic_fetch_add(&nr_wrong_results, 1);
        atomic_fetch_add(&nr_taken, 1);
        atomic_fetch_add(&item->nr_ends, 1);
    }
}

/* Submits batches of neighbours, and takes events of all threads until its own are there. */
static void *work(void *argument)
{
    long number = (long)argument, nr_faults = 0;
    struct item *items = calloc(NR, sizeof *items);
    char *memory = aligned_alloc(BLOCK, NR * BLOCK);
    int writes = number % 2 == 0;

    MUST(items != NULL && memory != NULL);
    for (int round = 0; round < nr_rounds; round++) {
        struct iocb *list[NR];
        struct event events[NR];

        for (int n = 0; n < NR; n++) {
            char *block = memory + n * BLOCK;
            long at = number * NR + n;
            if (writes)
                stamp(block, at, 1);
            else
                memset(block, 0, BLOCK);
            items[n].iocb = (struct iocb){ .data = (uint64_t)(uintptr_t)&items[n],
                                           .opcode = writes ? PWRITE : PREAD, .fd = (uint32_t)fd,
                                           .buf = (uint64_t)(uintptr_t)block, .nbytes = BLOCK,
                                           .offset = at * BLOCK };
            list[n] = &items[n].iocb;
        }
        for (int done = 0; done < NR;) {
            int nr = io_submit(shared, NR - done, list + done);
            if (nr == -EAGAIN) {
                struct timespec none = { 0, 0 };
                int taken = io_getevents(shared, 0, NR, events, &none);
                MUST(taken >= 0);
                take(events, taken);
                continue;
            }
            MUST(nr > 0);
            done += nr;
        }
        for (;;) {
            struct timespec limit = { 0, 2 * 1000 * 1000 };
            int nr_ended = 0, taken;
            for (int n = 0; n < NR; n++)
                nr_ended += atomic_load(&items[n].nr_ends) > round;
            if (nr_ended == NR)
                break;
            taken = io_getevents(shared, number % 3 ? 1 : 2, NR, events, &limit);
            MUST(taken >= 0 || taken == -EINTR);
            take(events, taken > 0 ? taken : 0);
        }
        if (!writes)
            nr_faults += nr_wrong(memory, number * NR, NR, 1);
    }
    for (int n = 0; n < NR; n++)
        nr_faults += atomic_load(&items[n].nr_ends) != nr_rounds;
    free(items);
    free(memory);
    return (void *)nr_faults;
}

static void threads(int nr)
{
    pthread_t all[NR_THREADS];
    struct event event;
    struct timespec none = { 0, 0 };
    long nr_faults = 0;

    shared = NULL;
    atomic_store(&nr_taken, 0);
    MUST(io_setup(nr, &shared) == 0);
    for (long n = 0; n < NR_THREADS; n++)
        MUST(pthread_create(&all[n], NULL, work, (void *)n) == 0);
    for (int n = 0; n < NR_THREADS; n++) {
        void *result = NULL;
        MUST(pthread_join(all[n], &result) == 0);
        nr_faults += (long)result;
    }
    show("events", atomic_load(&nr_taken));
    show("wrong results", atomic_load(&nr_wrong_results));
    show("iocbs that have not ended once, and wrong blocks", nr_faults);
    show("events left", io_getevents(shared, 0, 1, &event, &none));
    show("destroy", io_destroy(shared));
}

/* Each context has its own events, also for the same blocks of a file. */
static void contexts(void)
{
    void *all[NR_CONTEXTS] = { NULL };

    for (int n = 0; n < NR_CONTEXTS; n++)
        MUST(io_setup(NR, &all[n]) == 0);
    for (int round = 0; round < 50; round++) {
        struct batch *batches[NR_CONTEXTS];
        for (int n = 0; n < NR_CONTEXTS; n++) {
            batches[n] = batch_of(n % 2 ? PREAD : PWRITE, fd, n / 3 * NR, NR, 1);
            MUST(io_submit(all[n], NR, batches[n]->list) == NR);
        }
        for (int n = NR_CONTEXTS - 1; n >= 0; n--) {
            MUST(reap(all[n], NR) == 0);
            MUST(nr_wrong(batches[n]->memory, n / 3 * NR, NR, 1) == 0);
            batch_free(batches[n]);
        }
    }
    /* One ends with I/O in flight. The others are not concerned. */
    for (int n = 0; n < NR_CONTEXTS; n++) {
        struct batch *batch = batch_of(PREAD, fd, 0, NR, 1), *other = batch_of(PREAD, fd, 0, NR, 1);
        void *next = all[(n + 1) % NR_CONTEXTS];
        if (n + 1 < NR_CONTEXTS)
            MUST(io_submit(next, NR, other->list) == NR);
        MUST(io_submit(all[n], NR, batch->list) == NR);
        show("destroy", io_destroy(all[n]));
        MUST(n + 1 == NR_CONTEXTS || reap(next, NR) == 0);
        show("wrong blocks after it", nr_wrong(batch->memory, 0, NR, 1));
        batch_free(batch);
        batch_free(other);
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    if (argc > 2)
        nr_rounds = atoi(argv[2]);
    make_file(argv[1], NR_BLOCKS, 1);
    fd = open(argv[1], O_RDWR | O_DIRECT);
    MUST(fd >= 0);
    contexts();
    threads(NR_THREADS * NR);
    /* Less room than all threads need. */
    threads(2 * NR);
    show("wrong blocks in the file", nr_wrong_in(argv[1], NR_BLOCKS, 1));
    return 0;
}
