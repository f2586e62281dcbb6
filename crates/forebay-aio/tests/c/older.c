/* Calls the functions of libaio 0.1 that later versions have changed. */
#define _GNU_SOURCE
#include "aio.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NR = 8 };

static void show(const char *what, long result)
{
    printf("%s: %ld\n", what, result);
    fflush(stdout);
}

/* The version of a function that a program linked with libaio 0.1 gets. */
static void *older(const char *name)
{
    void *function = dlvsym(RTLD_DEFAULT, name, "LIBAIO_0.1");

    if (function == NULL) {
        printf("no %s\n", name);
        exit(3);
    }
    return function;
}

int main(int argc, char **argv)
{
    int (*get)(void *, long, struct event *, struct timespec *);
    int (*cancel)(void *, struct iocb *);
    int (*wait)(void *, struct timespec *);
    struct iocb iocbs[NR], *list[NR];
    struct event events[NR];
    struct timespec none = { 0, 0 };
    void *context = NULL;
    int ends[2], fd, nr = 0;
    char *memory;

    if (argc != 2 || pipe(ends) != 0)
        return 2;
    memory = aligned_alloc(BLOCK, NR * BLOCK);
    memset(memory, 1, NR * BLOCK);
    fd = open(argv[1], O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    *(void **)&get = older("io_getevents");
    *(void **)&cancel = older("io_cancel");
    *(void **)&wait = older("io_queue_wait");
    show("setup", io_setup(NR, &context));
    for (int n = 0; n < NR; n++) {
        iocbs[n] = (struct iocb){ .data = (uint64_t)n, .opcode = PWRITE, .fd = (uint32_t)fd,
                                  .buf = (uint64_t)(uintptr_t)(memory + n * BLOCK),
                                  .nbytes = BLOCK, .offset = n * BLOCK };
        list[n] = &iocbs[n];
    }
    show("submit", io_submit(context, NR, list));
    while (nr < NR) {
        int taken = get(context, NR - nr, events, NULL);
        if (taken < 1)
            break;
        nr += taken;
    }
    show("events", nr);
    show("none left", get(context, NR, events, &none));
    show("wait", wait(context, &none));
    iocbs[0] = (struct iocb){ .data = 9, .opcode = POLL, .fd = (uint32_t)ends[0], .buf = POLLIN };
    show("poll", io_submit(context, 1, list));
    show("cancel", cancel(context, &iocbs[0]));
    show("events", get(context, 1, events, NULL));
    show("its data", (long)events[0].data);
    show("destroy", io_destroy(context));
    return 0;
}
