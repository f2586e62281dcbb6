/* AIO by libc's syscall() only, and other system calls by it. */
#define _GNU_SOURCE
#include "aio.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NR = 32 };

static struct iocb iocbs[NR];
static struct iocb *list[NR];
static struct event events[NR];
static char *memory;
static unsigned long context;

static void show(const char *what, long result)
{
    printf("%s: %ld", what, result);
    if (result < 0)
        printf(", %s", strerror(errno));
    printf("\n");
    fflush(stdout);
}

static long submit(long nr)
{
    return syscall(SYS_io_submit, context, nr, list);
}

static long get(long min, long max, struct timespec *limit)
{
    return syscall(SYS_io_getevents, context, min, max, events, limit);
}

static void fill(int opcode, int fd)
{
    for (int n = 0; n < NR; n++) {
        iocbs[n] = (struct iocb){ .data = (uint64_t)n, .opcode = (uint16_t)opcode,
                                  .fd = (uint32_t)fd,
                                  .buf = (uint64_t)(uintptr_t)(memory + n * BLOCK),
                                  .nbytes = BLOCK, .offset = n * BLOCK };
        list[n] = &iocbs[n];
    }
}

static void take(int nr)
{
    long sum = 0;

    while (nr > 0) {
        long taken = get(1, nr, NULL);
        if (taken < 0) {
            show("getevents", taken);
            return;
        }
        for (long n = 0; n < taken; n++)
            sum += events[n].res;
        nr -= (int)taken;
    }
    show("sum of the results", sum);
}

static void mistakes(int fd)
{
    struct timespec none = { 0, 0 }, wrong = { 0, 2000000000 };
    struct { sigset_t *mask; size_t bytes; } mask = { NULL, 8 };
    unsigned long other = 8;
    sigset_t set;

    show("setup of 0", syscall(SYS_io_setup, 0, &other));
    show("setup with a handle", syscall(SYS_io_setup, 1, &other));
    show("no events", get(0, 1, &none));
    show("a wrong time", get(0, 1, &wrong));
    show("min above max", get(2, 1, &none));
    show("submit none", submit(0));
    show("submit -1", submit(-1));
    show("no list", syscall(SYS_io_submit, context, 1, NULL));
    fill(NOOP, fd);
    show("noop", submit(1));
    fill(PREAD, -1);
    show("closed descriptor", submit(1));
    show("cancel", syscall(SYS_io_cancel, context, &iocbs[0], events));
    show("no context", syscall(SYS_io_submit, 0, 1, list));
    show("destroy none", syscall(SYS_io_destroy, 4096));
    show("pgetevents", syscall(SYS_io_pgetevents, context, 0, 1, events, &none, &mask));
    show("without a mask", syscall(SYS_io_pgetevents, context, 0, 1, events, &none, NULL));
    sigemptyset(&set);
    mask.mask = &set;
    mask.bytes = 128;
    show("a mask of a wrong size", syscall(SYS_io_pgetevents, context, 0, 1, events, &none, &mask));
}

static void *destroy(void *nothing)
{
    usleep(50000);
    syscall(SYS_io_destroy, context);
    return nothing;
}

static void destroyed(void)
{
    pthread_t thread;

    pthread_create(&thread, NULL, destroy, NULL);
    show("a wait that destroy ends", get(1, 1, NULL));
    pthread_join(thread, NULL);
    show("destroy again", syscall(SYS_io_destroy, context));
}

static int of_clone(void *argument)
{
    return *(int *)argument + (int)(syscall(SYS_getpid) > 0);
}

static void others(void)
{
    static uint32_t word = 7;
    struct timespec short_time = { 0, 1000000 };
    int status = 0, argument = 4;
    char *stack = malloc(65536);
    void *mapped;
    pid_t child;

    show("getpid", syscall(SYS_getpid) == getpid());
    show("gettid", syscall(SYS_gettid) == gettid());
    show("close of -1", syscall(SYS_close, -1));
    show("unknown call", syscall(100000));
    show("futex of another value", syscall(SYS_futex, &word, FUTEX_WAIT, 8, &short_time, NULL, 0));
    show("futex", syscall(SYS_futex, &word, FUTEX_WAIT_BITSET, 7, &short_time, NULL, 1));
    /* All six arguments count. */
    mapped = (void *)syscall(SYS_mmap, NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    show("mmap", mapped != MAP_FAILED && *(char *)mapped == 0);
    show("mmap of a wrong offset",
         syscall(SYS_mmap, NULL, BLOCK, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 1));
    child = vfork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", "exit 3", NULL);
        _exit(9);
    }
    waitpid(child, &status, 0);
    show("vfork and exec", WEXITSTATUS(status));
    child = (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, 0);
    if (child == 0)
        _exit(6);
    waitpid(child, &status, 0);
    show("clone by syscall", WEXITSTATUS(status));
    child = clone(of_clone, stack + 65536, SIGCHLD, &argument);
    waitpid(child, &status, 0);
    show("clone", WEXITSTATUS(status));
}

static void forked(int fd)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        fill(PREAD, fd);
        show("submit in the child", submit(1));
        show("destroy in the child", syscall(SYS_io_destroy, context));
        context = 0;
        show("setup in the child", syscall(SYS_io_setup, 4, &context));
        show("submit", submit(4));
        take(4);
        _exit(0);
    }
    waitpid(child, &status, 0);
    show("the child", status);
}

int main(int argc, char **argv)
{
    int fd;

    if (argc != 2)
        return 2;
    memory = aligned_alloc(BLOCK, NR * BLOCK);
    memset(memory, 5, NR * BLOCK);
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    show("setup", syscall(SYS_io_setup, NR, &context));
    fill(PWRITE, fd);
    show("submit neighbours", submit(NR));
    take(NR);
    memset(memory, 0, NR * BLOCK);
    fill(PREAD, fd);
    show("submit neighbours", submit(NR));
    take(NR);
    show("their data", memory[0] == 5 && memory[NR * BLOCK - 1] == 5);
    mistakes(fd);
    forked(fd);
    others();
    destroyed();
    return 0;
}
