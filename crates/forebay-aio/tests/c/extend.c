/* Two processes extend a file each, and print the number of each block whose write has ended. They
 * run until they are killed. */
#include "batch.h"

enum { NR = 16, NR_BLOCKS = 1 << 15 };

/* Keeps two batches at work. A line is one write, so that a kill cannot cut it. */
static void extend(const char *path, int number)
{
    void *context = NULL;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_DIRECT, 0600);
    struct batch *batches[2];

    MUST(fd >= 0 && io_setup(2 * NR, &context) == 0);
    for (int nth = 0; nth * NR < NR_BLOCKS; nth++) {
        struct event events[NR];
        int nr_ended = 0;

        batches[nth % 2] = batch_of(PWRITE, fd, nth * NR, NR, number);
        MUST(io_submit(context, NR, batches[nth % 2]->list) == NR);
        /* Events of both batches come. So many are taken that there is room for the next one. */
        while (nth > 0 && nr_ended < NR) {
            int taken = io_getevents(context, 1, NR - nr_ended, events, NULL);
            MUST(taken > 0);
            for (int n = 0; n < taken; n++) {
                struct iocb *iocb = (struct iocb *)(uintptr_t)events[n].obj;
                char line[32];
                int len = snprintf(line, sizeof line, "%d %lld\n", number,
                                   (long long)(iocb->offset / BLOCK));
                MUST(events[n].res == BLOCK && write(1, line, (size_t)len) == len);
            }
            nr_ended += taken;
        }
        /* The memory of the batches stays: the kernel may use that of the older one. */
    }
    pause();
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    /* Ends a test in which no event comes. */
    alarm(60);
    /* A group of its own, which can be killed at once. */
    MUST(setpgid(0, 0) == 0);
    printf("group %d\n", getpid());
    fflush(stdout);
    for (int number = 1; number < 3; number++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            alarm(60);
            extend(argv[number], number);
        }
    }
    pause();
    return 0;
}
