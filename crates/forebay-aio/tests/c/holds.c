/* Reads one by one, and descriptors that are closed or used again while reads are held.
 *
 * Block n of the file has n in all of its words. The other file has other words. */
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
#include <sys/syscall.h>
#include <unistd.h>

enum { NR_BLOCKS = 512, NR_MAX = 64 };

static struct iocb iocbs[NR_MAX];
static char *memory;
static void *context;
static const char *path, *other_path;

static void show(const char *what, long result)
{
    printf("%s: %ld\n", what, result);
    fflush(stdout);
}

static void fill(const char *name, uint32_t first)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    uint32_t words[BLOCK / 4];

    for (uint32_t n = 0; n < NR_BLOCKS; n++) {
        for (int word = 0; word < BLOCK / 4; word++)
            words[word] = first + n;
        if (write(fd, words, BLOCK) != BLOCK)
            exit(4);
    }
    fsync(fd);
    close(fd);
}

static int submit(int nth, int fd, int64_t block)
{
    struct iocb *one = &iocbs[nth];

    *one = (struct iocb){ .data = (uint64_t)block, .opcode = PREAD, .fd = (uint32_t)fd,
                          .buf = (uint64_t)(uintptr_t)(memory + nth * BLOCK), .nbytes = BLOCK,
                          .offset = block * BLOCK };
    return io_submit(context, 1, &one);
}

/* Takes nr events, and returns how many are those of a whole block with its own data. */
static int reap(int nr)
{
    struct event events[NR_MAX];
    int nr_right = 0;

    while (nr > 0) {
        int taken = io_getevents(context, 1, nr, events, NULL);
        if (taken < 0)
            return taken;
        for (int n = 0; n < taken; n++) {
            struct iocb *one = (struct iocb *)(uintptr_t)events[n].obj;
            uint32_t *words = (uint32_t *)(uintptr_t)one->buf;
            nr_right += events[n].res == BLOCK && words[0] == events[n].data &&
                        words[BLOCK / 4 - 1] == events[n].data;
        }
        nr -= taken;
    }
    return nr_right;
}

/* Submits blocks one by one, from `first` on. */
static void submit_all(int fd, int nr, int64_t first)
{
    for (int n = 0; n < nr; n++)
        if (submit(n, fd, first + n) != 1)
            exit(5);
}

/* Keeps all iocbs in flight, and submits the next one for each that has ended. */
static void stream(int fd)
{
    int next = NR_MAX, nr_right = 0, nr_out = NR_MAX;
    struct event event;

    submit_all(fd, NR_MAX, 0);
    while (nr_out > 0) {
        if (io_getevents(context, 1, 1, &event, NULL) != 1)
            exit(6);
        struct iocb *one = (struct iocb *)(uintptr_t)event.obj;
        nr_right += event.res == BLOCK && *(uint32_t *)(uintptr_t)one->buf == event.data;
        nr_out--;
        if (next < NR_BLOCKS) {
            if (submit((int)(one - iocbs), fd, next++) != 1)
                exit(7);
            nr_out++;
        }
    }
    show("right blocks of a stream", nr_right);
}

static void *stream_of_thread(void *fd)
{
    stream(*(int *)fd);
    return NULL;
}

/* sysbench, for example, gives its threads such stacks. */
static void stream_on_a_small_stack(int fd)
{
    pthread_attr_t attributes;
    pthread_t thread;

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, 65536);
    pthread_create(&thread, &attributes, stream_of_thread, &fd);
    pthread_join(thread, NULL);
}

static void end_of_file(int fd)
{
    struct event events[NR_MAX];
    long sum = 0;
    int nr = 0;

    memset(memory, 0, NR_MAX * BLOCK);
    submit_all(fd, NR_MAX, NR_BLOCKS - 40);
    while (nr < NR_MAX) {
        int taken = io_getevents(context, 1, NR_MAX, events, NULL);
        if (taken < 0)
            break;
        for (int n = 0; n < taken; n++)
            sum += events[n].res;
        nr += taken;
    }
    show("bytes across the end of the file", sum);
}

static void close_inline(int fd)
{
#if defined(__x86_64__)
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(SYS_close), "D"(fd) : "rcx", "r11", "memory");
#else
    close(fd);
#endif
}

enum { CLOSE, FCLOSE, INLINE, REUSE, DUP2, READ_WRITE, NR_WAYS };

static void closed(int way)
{
    int fd = open(path, O_RDONLY | O_DIRECT), again = -1;
    FILE *file = way == FCLOSE ? fdopen(fd, "r") : NULL;

    submit_all(fd, NR_MAX, way * 10);
    if (way == FCLOSE)
        fclose(file);
    else if (way == INLINE)
        close_inline(fd);
    else if (way == DUP2) {
        again = open(other_path, O_RDONLY | O_DIRECT);
        dup2(again, fd);
        close(again);
        again = fd;
    } else
        close(fd);
    if (way == REUSE)
        again = open(other_path, O_RDONLY | O_DIRECT);
    if (way == READ_WRITE)
        again = open(path, O_WRONLY);
    show("way to close", way);
    show("right blocks", reap(NR_MAX));
    if (again >= 0)
        close(again);
}

static atomic_int shared_fd = -1, nr_reused, is_over;

/* Lets the number of a descriptor refer to the other file, at any moment. */
static void *reuse(void *nothing)
{
    int other = open(other_path, O_RDONLY | O_DIRECT);

    while (!is_over) {
        int fd = atomic_exchange(&shared_fd, -1);
        if (fd >= 0) {
            for (volatile int spin = rand() % 3000; spin > 0; spin--)
                ;
            dup2(other, fd);
            nr_reused++;
        }
    }
    close(other);
    return nothing;
}

static void raced(void)
{
    enum { NR_ROUNDS = 300 };
    pthread_t thread;
    int nr_right = 0;

    pthread_create(&thread, NULL, reuse, NULL);
    for (int round = 0; round < NR_ROUNDS; round++) {
        int fd = open(path, O_RDONLY | O_DIRECT);
        submit_all(fd, NR_MAX, round);
        shared_fd = fd;
        nr_right += reap(NR_MAX);
        while (nr_reused <= round)
            ;
        close(fd);
    }
    is_over = 1;
    pthread_join(thread, NULL);
    show("right blocks beside a thread that uses the number again", nr_right);
}

/* A poll that does not end keeps no read waiting. */
static void beside_a_poll(int fd)
{
    struct iocb poll = { .data = 7, .opcode = POLL, .buf = POLLIN }, *one = &poll;
    struct event events[NR_MAX];
    int ends[2], nr = 0;

    if (pipe(ends) != 0)
        return;
    poll.fd = (uint32_t)ends[0];
    show("poll", io_submit(context, 1, &one));
    submit_all(fd, 40, 0);
    while (nr < 40) {
        int taken = io_getevents(context, 1, NR_MAX, events, NULL);
        if (taken < 0)
            break;
        nr += taken;
    }
    show("reads beside a poll", nr);
    show("write", write(ends[1], "x", 1));
    show("events", io_getevents(context, 1, 1, events, NULL));
    show("its data", (long)events[0].data);
    close(ends[0]);
    close(ends[1]);
}

int main(int argc, char **argv)
{
    char other[4096];
    int fd;

    if (argc != 2)
        return 2;
    path = argv[1];
    snprintf(other, sizeof other, "%s.other", path);
    other_path = other;
    fill(path, 0);
    fill(other_path, 1000000);
    memory = aligned_alloc(BLOCK, NR_MAX * BLOCK);
    fd = open(path, O_RDONLY | O_DIRECT);
    show("setup", io_setup(2 * NR_MAX, &context));
    stream_on_a_small_stack(fd);
    end_of_file(fd);
    for (int way = 0; way < NR_WAYS; way++)
        closed(way);
    raced();
    beside_a_poll(fd);
    submit_all(fd, NR_MAX, 0);
    show("destroy with reads in flight", io_destroy(context));
    context = NULL;
    show("setup", io_setup(2 * NR_MAX, &context));
    submit_all(fd, NR_MAX, 0);
    show("right blocks of a new context", reap(NR_MAX));
    show("destroy", io_destroy(context));
    return 0;
}
