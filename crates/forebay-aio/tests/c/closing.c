/* Threads sync a file with slow flushes: one, and then several that wait for it. Then the program
 * closes the descriptor, or makes its number that of another file. */
#include "batch.h"
#include <pthread.h>

enum { NR_WAITING = 3 };

static int fd;

static void *sync_once(void *argument)
{
    (void)argument;
    return (void *)(long)(fsync(fd) == 0 ? 0 : errno);
}

int main(int argc, char **argv)
{
    pthread_t threads[1 + NR_WAITING];
    int other;

    if (argc != 3)
        return 2;
    fd = open(argv[1], O_RDWR);
    other = open("/dev/null", O_RDWR);
    MUST(fd >= 0 && other >= 0);
    for (int n = 0; n <= NR_WAITING; n++) {
        MUST(pthread_create(&threads[n], NULL, sync_once, NULL) == 0);
        usleep(20 * 1000);
    }
    if (strcmp(argv[2], "close") == 0)
        MUST(close(fd) == 0);
    else if (strcmp(argv[2], "dup2") == 0)
        MUST(dup2(other, fd) == fd);
    for (int n = 0; n <= NR_WAITING; n++) {
        void *result;
        MUST(pthread_join(threads[n], &result) == 0);
        printf("sync %d: %s\n", n, strerror((int)(long)result));
    }
    return 0;
}
