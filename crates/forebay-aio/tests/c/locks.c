/* Locks of a file stay held during I/O on it, and the program's close releases them. */
#include "batch.h"
#include <sys/file.h>

enum kind { FLOCK, POSIX, OFD, NR_KINDS };
static const char *names[] = { "flock", "posix", "ofd" };
static const char *path;

/* Tries to lock the whole file. Returns 0, or -1. */
static int lock(int fd, enum kind kind)
{
    struct flock all = { .l_type = F_WRLCK, .l_whence = SEEK_SET };

    if (kind == FLOCK)
        return flock(fd, LOCK_EX | LOCK_NB);
    return fcntl(fd, kind == POSIX ? F_SETLK : F_OFD_SETLK, &all);
}

/* Returns whether another process cannot lock the file. */
static int is_held(enum kind kind)
{
    int status = 0;
    pid_t child = fork();

    MUST(child >= 0);
    if (child == 0) {
        int fd = open(path, O_RDWR);
        _exit(fd < 0 ? 9 : lock(fd, kind) != 0);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status);
}

/* Returns whether the lock is held after at most two seconds. The kernel releases the file of an
 * iocb shortly after it has posted the event. */
static int is_held_at_last(enum kind kind)
{
    struct timespec pause = { 0, 10 * 1000 * 1000 };

    for (int n = 0; n < 200; n++) {
        if (!is_held(kind))
            return 0;
        nanosleep(&pause, NULL);
    }
    return 1;
}

static void show_lock(enum kind kind, const char *when, int is)
{
    printf("%s: %s: %s\n", names[kind], when, is ? "held" : "free");
    fflush(stdout);
}

int main(int argc, char **argv)
{
    enum { NR_BLOCKS = 64 };

    if (argc != 2)
        return 2;
    path = argv[1];
    make_file(path, NR_BLOCKS, 1);
    for (int kind = 0; kind < NR_KINDS; kind++) {
        void *context = NULL;
        int fd = open(path, O_RDWR | O_DIRECT);
        struct batch *batch;

        MUST(fd >= 0 && io_setup(2 * NR_MAX, &context) == 0);
        show_lock(kind, "before the lock", is_held(kind));
        MUST(lock(fd, kind) == 0);
        for (int round = 0; round < 4; round++) {
            batch = batch_of(round % 2 ? PREAD : PWRITE, fd, 0, NR_MAX, 2);
            MUST(io_submit(context, NR_MAX, batch->list) == NR_MAX);
            show_lock(kind, "during I/O", is_held(kind));
            show("wrong results", reap(context, NR_MAX));
            show_lock(kind, "after I/O", is_held(kind));
            batch_free(batch);
        }
        /* A merged request that fails is repeated, and one across the end is short. */
        batch = batch_of(PREAD, fd, 0, 16, 2);
        batch->iocbs[7].buf++;
        MUST(io_submit(context, 16, batch->list) == 16);
        show("wrong results of a misaligned batch", reap(context, 16));
        batch_free(batch);
        batch = batch_of(PREAD, fd, NR_BLOCKS - 8, 16, 2);
        MUST(io_submit(context, 16, batch->list) == 16);
        show("wrong results of a batch across the end", reap(context, 16));
        batch_free(batch);
        show_lock(kind, "after repeats", is_held(kind));
        MUST(io_destroy(context) == 0);
        show_lock(kind, "after the context", is_held(kind));
        context = NULL;
        MUST(io_setup(2 * NR_MAX, &context) == 0);
        batch = batch_of(PREAD, fd, 0, NR_MAX, 2);
        MUST(io_submit(context, NR_MAX, batch->list) == NR_MAX);
        show("wrong results", reap(context, NR_MAX));
        batch_free(batch);
        close(fd);
        show_lock(kind, "after the close", is_held_at_last(kind));
        /* The descriptor is closed while the kernel has the iocbs. */
        fd = open(path, O_RDWR | O_DIRECT);
        MUST(fd >= 0 && lock(fd, kind) == 0);
        batch = batch_of(PREAD, fd, 0, NR_MAX, 2);
        MUST(io_submit(context, NR_MAX, batch->list) == NR_MAX);
        close(fd);
        show("wrong results after the close", reap(context, NR_MAX));
        show("wrong blocks after the close", nr_wrong(batch->memory, 0, NR_MAX, 2));
        show_lock(kind, "after a close during I/O", is_held_at_last(kind));
        batch_free(batch);
        MUST(io_destroy(context) == 0);
    }
    return 0;
}
