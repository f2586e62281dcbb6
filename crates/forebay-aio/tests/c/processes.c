/* Forks, exec and exits while I/O is in flight. */
#include "batch.h"
#include <signal.h>
#include <spawn.h>

extern char **environ;

enum { NR_BLOCKS = 64, NR = 16 };
static const char *path;

/* Waits for a child. Returns its exit code, or 1000 and the signal that has ended it. */
static int code_of(pid_t child)
{
    int status = 0;

    MUST(child > 0 && waitpid(child, &status, 0) == child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

static int open_direct(void)
{
    int fd = open(path, O_RDWR | O_DIRECT);

    MUST(fd >= 0);
    return fd;
}

/* Reads a batch on a new context. Returns the number of wrong results and blocks. */
static int read_on_own_context(int fd, long seed)
{
    void *own = NULL;
    struct batch *batch = batch_of(PREAD, fd, 0, NR, seed);
    int wrong;

    MUST(io_setup(NR, &own) == 0);
    MUST(io_submit(own, NR, batch->list) == NR);
    wrong = reap(own, NR);
    wrong += nr_wrong(batch->memory, 0, NR, seed);
    batch_free(batch);
    MUST(io_destroy(own) == 0);
    return wrong;
}

/* The child's copy of a context is none, and the parent's events are all there. */
static void forks(void *context, int fd)
{
    for (int round = 0; round < 20; round++) {
        struct batch *batch = batch_of(PREAD, fd, 0, NR, 1);
        pid_t child;

        MUST(io_submit(context, NR, batch->list) == NR);
        child = fork();
        if (child == 0) {
            int fault = io_submit(context, NR, batch->list) != -EINVAL;
            fault |= (io_destroy(context) != -EINVAL) << 1;
            fault |= (read_on_own_context(fd, 1) != 0) << 2;
            /* A child of the child. */
            child = fork();
            if (child == 0)
                _exit(read_on_own_context(fd, 1) != 0);
            fault |= (code_of(child) != 0) << 3;
            _exit(fault);
        }
        if (round == 0)
            show("the parent's wrong results", reap(context, NR));
        else
            MUST(reap(context, NR) == 0);
        MUST(nr_wrong(batch->memory, 0, NR, 1) == 0);
        MUST(code_of(child) == 0);
        batch_free(batch);
    }
    show("forks", 20);
}

/* The new program starts without contexts. */
static void execs(void *context, int fd, char *self)
{
    char number[16];
    char *arguments[] = { self, (char *)path, number, NULL };
    struct batch *batch = batch_of(PREAD, fd, 0, NR, 1);
    pid_t child = 0;

    snprintf(number, sizeof number, "%d", fd);
    MUST(io_submit(context, NR, batch->list) == NR);
    MUST(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
    show("a spawned program", code_of(child));
    show("the parent's wrong results", reap(context, NR));
    MUST(io_submit(context, NR, batch->list) == NR);
    child = vfork();
    if (child == 0) {
        execv(self, arguments);
        _exit(99);
    }
    show("a program after vfork", code_of(child));
    show("system", system("exit 7") >> 8);
    show("the parent's wrong results", reap(context, NR));
    /* exec ends the context of a process with I/O in flight. */
    fflush(stdout);
    child = fork();
    if (child == 0) {
        void *own = NULL;
        struct batch *writes = batch_of(PWRITE, fd, 0, NR, 1);
        MUST(io_setup(NR, &own) == 0 && io_submit(own, NR, writes->list) == NR);
        execv(self, arguments);
        _exit(99);
    }
    show("a program after exec", code_of(child));
    batch_free(batch);
}

enum way { UNDERSCORE_EXIT, EXIT, RETURN, DESTROY, SIGNAL, NR_WAYS };
static const char *way_names[] = { "_exit", "exit", "a return from main", "io_destroy", "SIGKILL" };

/* A process ends with writes in flight. Its parent finds them in the file. */
static void exits(char *self)
{
    for (int way = 0; way < NR_WAYS; way++) {
        char name[8], seed[8];
        char *arguments[] = { self, (char *)path, "exit", name, seed, NULL };
        pid_t child = 0;

        snprintf(name, sizeof name, "%d", way);
        snprintf(seed, sizeof seed, "%d", 10 + way);
        MUST(posix_spawn(&child, self, NULL, NULL, arguments, environ) == 0);
        printf("%s: %d\n", way_names[way], code_of(child));
        show("blocks that are not in the file", nr_wrong_in(path, 2 * NR, 10 + way));
    }
}

static int exit_with_writes(enum way way, long seed)
{
    void *context = NULL;
    int fd = open_direct();
    struct batch *one = batch_of(PWRITE, fd, 0, NR, seed);
    struct batch *two = batch_of(PWRITE, fd, NR, NR, seed);

    MUST(io_setup(2 * NR, &context) == 0);
    MUST(io_submit(context, NR, one->list) == NR && io_submit(context, NR, two->list) == NR);
    switch (way) {
    case UNDERSCORE_EXIT:
        _exit(20);
    case EXIT:
        exit(21);
    case DESTROY:
        MUST(io_destroy(context) == 0);
        return 23;
    case SIGNAL:
        kill(getpid(), SIGKILL);
        pause();
        break;
    default:
        break;
    }
    return 22;
}

int main(int argc, char **argv)
{
    void *context = NULL;
    int fd;

    if (argc < 2)
        return 2;
    path = argv[1];
    if (argc == 5)
        return exit_with_writes((enum way)atoi(argv[3]), atoi(argv[4]));
    if (argc == 3)
        return read_on_own_context(atoi(argv[2]), 1) == 0 ? 30 : 31;
    make_file(path, NR_BLOCKS, 1);
    fd = open_direct();
    MUST(io_setup(2 * NR, &context) == 0);
    forks(context, fd);
    execs(context, fd, argv[0]);
    show("destroy", io_destroy(context));
    exits(argv[0]);
    return 0;
}
