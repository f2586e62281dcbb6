/* Prints the result of each call of libaio, with good and with wrong arguments.
 *
 * libaio crashes in io_getevents() if the context is gone, so that call is left out. */
#define _GNU_SOURCE
#include "aio.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NR_MAX = 64 };

static struct iocb iocbs[NR_MAX];
static struct iocb *list[NR_MAX];
static char *memory;

static void show(const char *what, long result)
{
    printf("%s: %ld\n", what, result);
    fflush(stdout);
}

static struct iocb *set(int nth, int opcode, int fd, void *buf, uint64_t nbytes, int64_t offset)
{
    memset(&iocbs[nth], 0, sizeof iocbs[nth]);
    iocbs[nth] = (struct iocb){ .data = (uint64_t)nth + 100, .opcode = (uint16_t)opcode,
                                .fd = (uint32_t)fd, .buf = (uint64_t)(uintptr_t)buf,
                                .nbytes = nbytes, .offset = offset };
    list[nth] = &iocbs[nth];
    return list[nth];
}

static int by_data(const void *a, const void *b)
{
    const struct event *one = a, *two = b;
    return (one->data > two->data) - (one->data < two->data);
}

/* Takes the events of nr iocbs, and prints them in the order of the iocbs. */
static void reap(void *context, const char *what, int nr)
{
    struct event events[NR_MAX];
    int nr_taken = 0;

    while (nr_taken < nr) {
        int taken = io_getevents(context, 1, nr - nr_taken, events + nr_taken, NULL);
        if (taken < 0) {
            show("io_getevents", taken);
            return;
        }
        nr_taken += taken;
    }
    qsort(events, (size_t)nr, sizeof events[0], by_data);
    for (int n = 0; n < nr; n++)
        printf("%s: iocb %ld: %ld %ld, its address is %s\n", what, (long)events[n].data,
               (long)events[n].res, (long)events[n].res2,
               events[n].obj == (uint64_t)(uintptr_t)&iocbs[events[n].data - 100] ? "right" : "wrong");
}

/* Submits nr iocbs, and takes the events of those that were accepted. */
static void run(void *context, const char *what, int nr)
{
    int accepted = io_submit(context, nr, list);

    show(what, accepted);
    if (accepted > 0)
        reap(context, what, accepted);
}

static uint32_t checksum(const char *data, size_t len)
{
    uint32_t sum = 2166136261;

    for (size_t n = 0; n < len; n++)
        sum = (sum ^ (unsigned char)data[n]) * 16777619;
    return sum;
}

static void fill(int seed)
{
    for (int n = 0; n < NR_MAX * BLOCK; n++)
        memory[n] = (char)((n / BLOCK * 7 + n % 251) * seed);
}

static void contexts(void)
{
    void *context = NULL, *other = (void *)8;
    struct event event;
    struct timespec none = { 0, 0 };

    show("setup of 0", io_setup(0, &context));
    show("setup of -1", io_setup(-1, &context));
    show("setup with a handle", io_setup(1, &other));
    show("setup", io_setup(4, &context));
    show("no iocbs", io_submit(context, 0, list));
    show("-1 iocbs", io_submit(context, -1, list));
    show("no list", io_submit(context, 1, NULL));
    show("no context", io_submit(NULL, 0, list));
    show("min above max", io_getevents(context, 2, 1, &event, NULL));
    show("min of -1", io_getevents(context, -1, 1, &event, NULL));
    show("nothing there", io_getevents(context, 0, 1, &event, &none));
    show("nothing there, one wanted", io_getevents(context, 1, 1, &event, &none));
    show("destroy", io_destroy(context));
    show("destroy again", io_destroy(context));
    show("submit to one that is gone", io_submit(context, 0, list));
    show("queue of 0", io_queue_init(0, &context));
    show("queue", io_queue_init(4, &context));
    show("queue run", io_queue_run(context));
    show("queue release", io_queue_release(context));
}

static void mistakes(void *context, int fd, int read_only)
{
    struct event event;

    errno = 77;
    set(0, PREAD, -1, memory, BLOCK, 0);
    run(context, "closed descriptor", 1);
    show("a list in the kernel", io_submit(context, 1, (struct iocb **)-8L));
    list[0] = (struct iocb *)-64L;
    run(context, "an iocb in the kernel", 1);
    for (int n = 0; n < 3; n++)
        set(n, PREAD, fd, n == 1 ? (void *)-4096L : memory + n * BLOCK, BLOCK, n * BLOCK);
    run(context, "neighbours, one of them in the kernel", 3);
    for (int n = 0; n < 3; n++)
        set(n, PREAD, fd, memory + n * BLOCK, BLOCK, n * BLOCK)->flags = RESFD;
    iocbs[1].resfd = (uint32_t)fd;
    iocbs[0].resfd = iocbs[2].resfd = 1000;
    run(context, "a file as an eventfd", 3);
    list[0] = &iocbs[1];
    run(context, "a file as an eventfd, first", 1);
    set(0, NOOP, fd, memory, BLOCK, 0);
    run(context, "noop", 1);
    set(0, 77, fd, memory, BLOCK, 0);
    run(context, "unknown operation", 1);
    set(0, PREAD, fd, memory, BLOCK, 0)->reserved2 = 1;
    run(context, "reserved field", 1);
    set(0, PREAD, fd, memory, BLOCK, -BLOCK);
    run(context, "negative offset", 1);
    set(0, PREAD, fd, NULL, BLOCK, 0);
    run(context, "no memory", 1);
    set(0, PWRITE, read_only, memory, BLOCK, 0);
    run(context, "write to a file that is open for reading", 1);
    set(0, PREAD, fd, memory, BLOCK, 0)->flags = RESFD;
    iocbs[0].resfd = 1000;
    run(context, "closed eventfd", 1);
    set(0, PREAD, fd, memory, BLOCK, 0);
    set(1, PREAD, -1, memory, BLOCK, 0);
    set(2, PREAD, fd, memory, BLOCK, 0);
    run(context, "a wrong one in the middle", 3);
    set(0, PREAD, fd, memory, BLOCK, 0);
    list[1] = NULL;
    run(context, "an address of 0 in the middle", 2);
    show("cancel of one that has ended", io_cancel(context, &iocbs[0], &event));
    for (int n = 0; n < 4; n++)
        set(n, PWRITE, read_only, memory + n * BLOCK, BLOCK, n * BLOCK);
    run(context, "neighbours in a file that is open for reading", 4);
    for (int n = 0; n < 4; n++)
        set(n, PREAD, fd, memory + n * BLOCK + (n == 2), BLOCK, n * BLOCK);
    run(context, "neighbours, one of them misaligned", 4);
    show("errno", errno);
}

/* Writes that reach the limit of the file size, and a descriptor that is another file meanwhile. */
static void limits(void *context, int fd, int other)
{
    struct rlimit before, limit;
    int number = dup(fd);

    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 5 * BLOCK + 512;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int n = 0; n < 8; n++)
        set(n, PWRITE, fd, memory + n * BLOCK, BLOCK, n * BLOCK);
    run(context, "neighbours at the limit of the size", 8);
    limit.rlim_cur = 2 * BLOCK;
    setrlimit(RLIMIT_FSIZE, &limit);
    for (int n = 0; n < 2; n++)
        set(n, PWRITE, number, memory + n * BLOCK, BLOCK, n * BLOCK);
    show("before the number is another file", io_submit(context, 2, list));
    dup2(other, number);
    reap(context, "before the number is another file", 2);
    setrlimit(RLIMIT_FSIZE, &before);
    close(number);
}

static void data(void *context, int fd, int nr_blocks)
{
    struct iovec vectors[4];
    char name[64];

    fill(3);
    for (int n = 0; n < 16; n++)
        set(n, PWRITE, fd, memory + n * BLOCK, BLOCK, n * BLOCK);
    run(context, "neighbours written", 16);
    memset(memory, 0, NR_MAX * BLOCK);
    for (int n = 0; n < 16; n++)
        set(n, PREAD, fd, memory + (15 - n) * BLOCK, BLOCK, (15 - n) * BLOCK);
    run(context, "neighbours read backwards", 16);
    show("their data", checksum(memory, 16 * BLOCK));
    fill(5);
    for (int n = 0; n < 4; n++)
        vectors[n] = (struct iovec){ memory + (3 - n) * BLOCK, BLOCK };
    set(0, PWRITEV, fd, vectors, 4, 16 * BLOCK);
    set(1, PWRITE, fd, memory + 4 * BLOCK, BLOCK, 20 * BLOCK);
    set(2, FSYNC, fd, NULL, 0, 0);
    set(3, FDSYNC, fd, NULL, 0, 0);
    run(context, "vectors, a neighbour and syncs", 4);
    memset(memory, 0, NR_MAX * BLOCK);
    set(0, PREADV, fd, vectors, 4, 16 * BLOCK);
    set(1, PREAD, fd, memory + 4 * BLOCK, BLOCK, 20 * BLOCK);
    run(context, "vectors and a neighbour read", 2);
    show("their data", checksum(memory, 5 * BLOCK));
    for (int n = 0; n < 4; n++)
        set(n, PREAD, fd, memory + n * BLOCK, BLOCK, (nr_blocks - 2 + n) * BLOCK);
    snprintf(name, sizeof name, "neighbours across the end of the file");
    run(context, name, 4);
    set(0, PREAD, fd, memory, 8 * BLOCK, (nr_blocks - 3) * BLOCK);
    run(context, "a read across the end of the file", 1);
}

static void eventfds(void *context, int fd)
{
    int resfd = eventfd(0, EFD_NONBLOCK);
    struct pollfd readable = { .fd = resfd, .events = POLLIN };
    uint64_t count = 0;
    int nr_signals = 0;

    for (int n = 0; n < 8; n++) {
        set(n, PREAD, fd, memory + n * BLOCK, BLOCK, n * BLOCK)->flags = RESFD;
        iocbs[n].resfd = (uint32_t)resfd;
    }
    show("eight with an eventfd", io_submit(context, 8, list));
    while (nr_signals < 8 && poll(&readable, 1, 10000) == 1) {
        if (read(resfd, &count, sizeof count) == sizeof count)
            nr_signals += (int)count;
    }
    show("signals", nr_signals);
    reap(context, "with an eventfd", 8);
    close(resfd);
}

/* Iocbs that reach the kernel in different ways, and data that the library could take for its own. */
static void kinds(void *context, int fd)
{
    static const uint64_t data[] = { UINT64_MAX, UINT64_C(1) << 62, 0 };
    int eventfd_of_two = eventfd(0, EFD_NONBLOCK);
    struct event event, events[NR_MAX];
    struct pollfd poll_fd = { .fd = eventfd_of_two, .events = POLLIN };
    uint64_t count, sum = 0;

    for (int n = 0; n < 3; n++) {
        set(n, PREAD, fd, memory + n * BLOCK, BLOCK, 2 * n * BLOCK)->data = data[n];
        show("alone", io_submit(context, 1, list + n));
    }
    for (int n = 0; n < 3; n++) {
        show("one event", io_getevents(context, 1, 1, &event, NULL));
        uint64_t nth = (event.obj - (uint64_t)(uintptr_t)iocbs) / sizeof iocbs[0];
        events[nth < 3 ? nth : 3] = event;
    }
    for (int n = 0; n < 3; n++)
        printf("data %llx: %ld\n", (unsigned long long)events[n].data, (long)events[n].res);

    for (int n = 0; n < 7; n++)
        set(n, PREAD, fd, memory + n * BLOCK, BLOCK, (n == 2 ? 3 : 2 * n) * BLOCK);
    for (int n = 3; n < 6; n += 2) {
        iocbs[n].flags = RESFD;
        iocbs[n].resfd = (uint32_t)eventfd_of_two;
    }
    show("alone", io_submit(context, 1, list));
    show("neighbours", io_submit(context, 2, list + 1));
    show("alone with an eventfd", io_submit(context, 1, list + 3));
    show("no neighbours", io_submit(context, 3, list + 4));
    reap(context, "kinds", 7);
    while (sum < 2 && poll(&poll_fd, 1, 10000) == 1 && read(eventfd_of_two, &count, 8) == 8)
        sum += count;
    show("eventfd", (long)sum);
    close(eventfd_of_two);
    show("cancel one that has ended", io_cancel(context, &iocbs[0], &event));

    set(0, PREAD, fd, memory, BLOCK, 0);
    show("once", io_submit(context, 1, list));
    show("the same iocb again", io_submit(context, 1, list));
    reap(context, "twice", 2);

    for (int n = 0; n < 40; n++) {
        set(n, PREAD, fd, memory + n * BLOCK, BLOCK, n * 7 % 40 * BLOCK);
        if (io_submit(context, 1, list + n) != 1)
            show("submit", n);
    }
    show("all at once", io_getevents(context, 40, NR_MAX, events, NULL));
}

static void pipes(void *context)
{
    int ends[2];

    if (pipe(ends) != 0)
        return;
    set(0, PWRITE, ends[1], "one", 3, 0);
    set(1, PWRITE, ends[1], "two", 3, 3);
    run(context, "a pipe written", 2);
    memset(memory, 0, 8);
    set(0, PREAD, ends[0], memory, 6, 0);
    run(context, "a pipe read", 1);
    printf("its data: %s\n", memory);
}

static void forks(void *context, int fd)
{
    int status = 0;
    pid_t child;

    fflush(stdout);
    child = fork();
    if (child == 0) {
        void *own = NULL;
        set(0, PREAD, fd, memory, BLOCK, 0);
        show("submit in the child", io_submit(context, 1, list));
        show("destroy in the child", io_destroy(context));
        show("setup in the child", io_setup(4, &own));
        run(own, "the child's own", 1);
        _exit(0);
    }
    waitpid(child, &status, 0);
    show("the child", status);
    set(0, PREAD, fd, memory, BLOCK, 0);
    run(context, "the parent", 1);
}

int main(int argc, char **argv)
{
    enum { NR_BLOCKS = 40 };
    void *context = NULL;

    if (argc != 2)
        return 2;
    memory = aligned_alloc(BLOCK, NR_MAX * BLOCK);
    for (int direct = 0; direct < 2; direct++) {
        int flags = O_RDWR | O_CREAT | O_TRUNC | (direct ? O_DIRECT : 0);
        int fd = open(argv[1], flags, 0600);
        int read_only = open(argv[1], O_RDONLY | (direct ? O_DIRECT : 0));
        if (fd < 0 || read_only < 0 || ftruncate(fd, NR_BLOCKS * BLOCK) != 0)
            return 3;
        show("direct", direct);
        contexts();
        context = NULL;
        show("setup", io_setup(NR_MAX, &context));
        mistakes(context, fd, read_only);
        data(context, fd, NR_BLOCKS);
        limits(context, fd, read_only);
        eventfds(context, fd);
        kinds(context, fd);
        pipes(context);
        forks(context, fd);
        show("destroy", io_destroy(context));
        close(fd);
        close(read_only);
    }
    return 0;
}
