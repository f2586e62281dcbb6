/* Prints the results of waits: signals, masks, several threads, polls, eventfds that were closed,
 * and ends of contexts. */
#define _GNU_SOURCE
#include "aio.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

enum { NR_MAX = 64, NR_THREADS = 4, NR_ROUNDS = 40 };

static struct iocb iocbs[NR_MAX];
static struct iocb *list[NR_MAX];
static char *memory;
static void *shared;
static int file;
static atomic_int nr_handled;

static void show(const char *what, long result)
{
    printf("%s: %ld\n", what, result);
    fflush(stdout);
}

static struct iocb *set(int nth, int opcode, int fd, void *buf, uint64_t nbytes, int64_t offset)
{
    iocbs[nth] = (struct iocb){ .data = (uint64_t)nth + 100, .opcode = (uint16_t)opcode,
                                .fd = (uint32_t)fd, .buf = (uint64_t)(uintptr_t)buf,
                                .nbytes = nbytes, .offset = offset };
    list[nth] = &iocbs[nth];
    return list[nth];
}

static void handle(int number)
{
    (void)number;
    nr_handled++;
}

/* Raises SIGALRM again and again: one signal could come before the wait that it should end. */
static void start_alarm(int milliseconds)
{
    struct itimerval timer = { { 0, milliseconds * 1000 }, { 0, milliseconds * 1000 } };

    nr_handled = 0;
    setitimer(ITIMER_REAL, &timer, NULL);
}

static void stop_alarm(void)
{
    struct itimerval timer = { { 0, 0 }, { 0, 0 } };

    setitimer(ITIMER_REAL, &timer, NULL);
    show("handled", nr_handled > 0);
    nr_handled = 0;
}

static double now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

/* Takes nr events, and returns the sum of their results. */
static long reap(void *context, int nr)
{
    struct event events[NR_MAX];
    long sum = 0;

    while (nr > 0) {
        int taken = io_getevents(context, nr < 3 ? nr : 3, nr, events, NULL);
        if (taken < 0)
            return taken;
        for (int n = 0; n < taken; n++)
            sum += events[n].res;
        nr -= taken;
    }
    return sum;
}

static void submit_neighbours(void *context, int nr, int resfd)
{
    for (int n = 0; n < nr; n++) {
        set(n, PREAD, file, memory + n * BLOCK, BLOCK, n * BLOCK);
        if (resfd >= 0) {
            iocbs[n].flags = RESFD;
            iocbs[n].resfd = (uint32_t)resfd;
        }
    }
    show("submit neighbours", io_submit(context, nr, list));
}

static void signals(void *context)
{
    struct sigaction action = { .sa_handler = handle };
    struct event event, events[8];
    struct timespec limit = { 10, 0 }, none = { 0, 0 };
    sigset_t blocked, mask;
    double start;

    sigaction(SIGALRM, &action, NULL);
    start_alarm(50);
    show("wait that a signal ends", io_getevents(context, 1, 1, &event, NULL));
    show("wait with a limit that a signal ends", io_getevents(context, 1, 1, &event, &limit));
    stop_alarm();
    /* The events that are there are returned instead of EINTR. */
    for (int n = 0; n < 3; n++)
        set(n, PREAD, file, memory + n * BLOCK, BLOCK, 2 * n * BLOCK);
    show("submit", io_submit(context, 3, list));
    start_alarm(50);
    show("wait for more events than there are", io_getevents(context, 8, 8, events, NULL));
    stop_alarm();
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGALRM);
    sigprocmask(SIG_BLOCK, &blocked, &mask);
    raise(SIGALRM);
    limit = (struct timespec){ 0, 30000000 };
    start = now();
    show("wait with the signal blocked", io_getevents(context, 1, 1, &event, &limit));
    show("it waited", now() - start > 0.029);
    show("handled", nr_handled);
    show("wait with a mask that admits it", io_pgetevents(context, 1, 1, &event, NULL, &mask));
    show("handled", nr_handled);
    sigprocmask(SIG_SETMASK, NULL, &blocked);
    show("the mask is as before", sigismember(&blocked, SIGALRM));
    sigprocmask(SIG_SETMASK, &mask, NULL);
    show("look", io_pgetevents(context, 0, 1, &event, &none, &mask));
}

/* The program closes an eventfd, or uses its number again, while iocbs have it. */
static void closed_eventfds(void *context)
{
    int resfd = eventfd(0, EFD_NONBLOCK), copy = dup(resfd), other = eventfd(0, EFD_NONBLOCK);
    uint64_t count = 0;
    int ends[2];

    if (pipe(ends) != 0)
        return;
    /* A poll of an empty pipe ends when the number is another one already. */
    set(0, POLL, ends[0], NULL, 0, 0)->buf = POLLIN;
    iocbs[0].flags = RESFD;
    iocbs[0].resfd = (uint32_t)resfd;
    show("poll", io_submit(context, 1, list));
    dup2(other, resfd);
    show("write", write(ends[1], "x", 1));
    show("result of the poll", reap(context, 1));
    while (read(copy, &count, sizeof count) != sizeof count)
        usleep(1000);
    show("signals of the eventfd", (long)count);
    show("signals of the other one", read(other, &count, sizeof count));
    submit_neighbours(context, 16, copy);
    close(copy);
    show("their results", reap(context, 16));
    close(resfd);
    close(other);
    close(ends[0]);
    close(ends[1]);
}

static void cancelled(void *context)
{
    struct event event = { 0, 0, 0, 0 };
    int resfd = eventfd(0, EFD_NONBLOCK);
    uint64_t count = 0;

    set(0, POLL, resfd, NULL, 0, 0)->buf = POLLIN;
    show("poll", io_submit(context, 1, list));
    show("cancel of another address", io_cancel(context, &iocbs[1], &event));
    show("cancel", io_cancel(context, &iocbs[0], &event));
    show("events", io_getevents(context, 1, 1, &event, NULL));
    show("its data", (long)event.data);
    show("cancel again", io_cancel(context, &iocbs[0], &event));
    show("cancel at no address", io_cancel(context, NULL, &event));
    /* The end of a context signals the eventfds of what it ends. */
    context = NULL;
    show("setup", io_setup(8, &context));
    set(0, POLL, resfd, NULL, 0, 0)->buf = POLLPRI;
    iocbs[0].flags = RESFD;
    iocbs[0].resfd = (uint32_t)resfd;
    show("poll", io_submit(context, 1, list));
    submit_neighbours(context, 4, resfd);
    show("destroy", io_destroy(context));
    for (long sum = 0; sum < 5; sum += (long)count)
        if (read(resfd, &count, sizeof count) != sizeof count)
            count = 0;
    show("all are signalled", 1);
    close(resfd);
}

static void *write_later(void *fd)
{
    usleep(50000);
    return (void *)write(*(int *)fd, "x", 1);
}

/* A submission that waits for a pipe keeps no other thread from the context. */
static void *read_pipe(void *fd)
{
    static struct iocb iocb;
    struct iocb *one = &iocb;
    static char byte;

    iocb = (struct iocb){ .data = 7, .opcode = PREAD, .fd = *(uint32_t *)fd,
                          .buf = (uint64_t)(uintptr_t)&byte, .nbytes = 1 };
    return (void *)(long)io_submit(shared, 1, &one);
}

static void blocked_submission(void)
{
    struct event event;
    pthread_t reader, writer;
    void *result;
    int ends[2];

    if (pipe(ends) != 0)
        return;
    pthread_create(&reader, NULL, read_pipe, &ends[0]);
    usleep(20000);
    submit_neighbours(shared, 8, -1);
    show("results beside a submission that waits", reap(shared, 8));
    pthread_create(&writer, NULL, write_later, &ends[1]);
    show("events of it", io_getevents(shared, 1, 1, &event, NULL));
    show("its data", (long)event.data);
    pthread_join(reader, &result);
    show("accepted", (long)result);
    pthread_join(writer, NULL);
    close(ends[0]);
    close(ends[1]);
}

/* Each thread submits neighbours, and takes as many events as there are iocbs of all. */
static void *submit_and_take(void *sum)
{
    static const int nr = 8;
    struct iocb own[8], *its[8];
    struct event events[8];
    char *buffer = aligned_alloc(BLOCK, 8 * BLOCK);

    for (int round = 0; round < NR_ROUNDS; round++) {
        int nr_taken = 0;
        for (int n = 0; n < nr; n++) {
            own[n] = (struct iocb){ .data = 1, .opcode = PREAD, .fd = (uint32_t)file,
                                    .buf = (uint64_t)(uintptr_t)(buffer + n * BLOCK),
                                    .nbytes = BLOCK, .offset = n * BLOCK };
            its[n] = &own[n];
        }
        if (io_submit(shared, nr, its) != nr)
            return NULL;
        while (nr_taken < nr) {
            int taken = io_getevents(shared, round % 5 + 1 < nr - nr_taken ? round % 5 + 1 : 1,
                                     nr - nr_taken, events, NULL);
            if (taken < 0)
                return NULL;
            nr_taken += taken;
            for (int n = 0; n < taken; n++)
                *(long *)sum += events[n].res;
        }
    }
    /* Events of other threads' iocbs may have been taken, so the memory stays. */
    return sum;
}

static void threads(void)
{
    pthread_t all[NR_THREADS];
    long sums[NR_THREADS] = { 0 }, sum = 0;
    struct timespec none = { 0, 0 };
    struct event event;

    for (int n = 0; n < NR_THREADS; n++)
        pthread_create(&all[n], NULL, submit_and_take, &sums[n]);
    for (int n = 0; n < NR_THREADS; n++) {
        pthread_join(all[n], NULL);
        sum += sums[n];
    }
    show("results of all threads", sum);
    show("events left", io_getevents(shared, 0, 1, &event, &none));
}

int main(int argc, char **argv)
{
    struct iovec vectors[1025];
    void *context = NULL;

    if (argc != 2)
        return 2;
    memory = aligned_alloc(BLOCK, NR_MAX * BLOCK);
    memset(memory, 1, NR_MAX * BLOCK);
    file = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    if (file < 0 || pwrite(file, memory, NR_MAX * BLOCK, 0) != NR_MAX * BLOCK)
        return 3;
    show("setup", io_setup(NR_MAX, &context));
    show("places of the ring", ((struct ring *)context)->nr);
    shared = context;
    signals(context);
    closed_eventfds(context);
    cancelled(context);
    blocked_submission();
    threads();
    submit_neighbours(context, 64, -1);
    show("results of a wait for many", reap(context, 64));
    for (int n = 0; n < 1025; n++)
        vectors[n] = (struct iovec){ memory, 0 };
    for (int n = 0; n < 2; n++)
        set(n, PREAD, file, memory + n * BLOCK, BLOCK, n * BLOCK);
    set(2, PREADV, file, vectors, 1025, 2 * BLOCK);
    show("too many vectors, last", io_submit(context, 3, list));
    show("results", reap(context, 2));
    show("too many vectors", io_submit(context, 1, &list[2]));
    show("destroy", io_destroy(context));
    return 0;
}
