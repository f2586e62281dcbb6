/* Reads from several files, whose descriptors have the same number one after the other. */
#include "batch.h"

/* Creates a file of two blocks, and opens it. */
static int open_new(const char *path, const char *name, int flags)
{
    char whole[4096], blocks[2 * BLOCK] = { 0 };
    int fd;

    snprintf(whole, sizeof whole, "%s.%s", path, name);
    fd = open(whole, O_RDWR | O_CREAT, 0600);
    MUST(fd >= 0 && write(fd, blocks, sizeof blocks) == sizeof blocks && close(fd) == 0);
    fd = open(whole, O_RDONLY | flags);
    MUST(fd >= 0);
    return fd;
}

/* Reads the two blocks of a file, with one call or with two, and closes it. */
static void read_all(void *context, int fd, int is_batch)
{
    struct batch *batch = batch_of(PREAD, fd, 0, 2, 0);
    struct event events[2];

    for (int n = 0; n < 2; n += is_batch ? 2 : 1) {
        int nr = is_batch ? 2 : 1;
        show("submit", io_submit(context, nr, batch->list + n));
        show("events", io_getevents(context, nr, nr, events, NULL));
    }
    batch_free(batch);
    close(fd);
}

int main(int argc, char **argv)
{
    struct timespec pause = { 0, 300 * 1000 * 1000 };
    void *context = NULL;
    int fd, number;

    if (argc != 2)
        return 2;
    MUST(io_setup(8, &context) == 0);
    number = open_new(argv[1], "one", 0);
    read_all(context, number, 0);
    nanosleep(&pause, NULL);
    fd = open_new(argv[1], "late", 0);
    MUST(fd == number);
    read_all(context, fd, 0);
    fd = open_new(argv[1], "soon", 0);
    MUST(fd == number);
    read_all(context, fd, 0);
    fd = open_new(argv[1], "batch", O_DIRECT);
    MUST(fd == number);
    read_all(context, fd, 1);
    show("destroy", io_destroy(context));
    return 0;
}
