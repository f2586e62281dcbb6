/* A descriptor is closed while reads of it are in flight, and its number is another file then. */
#include "batch.h"

enum { NR_BLOCKS = 64, NR = 16, NR_ROUNDS = 60 };

enum way { CLOSE, FCLOSE, INLINE_CLOSE, DUP2, NR_WAYS };
static const char *names[] = { "close", "fclose", "inline assembly", "dup2" };

/* Makes the system call itself, as some programs and other languages do. */
static int inline_close(int fd)
{
#if defined __x86_64__
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "0"(3L), "D"((long)fd) : "rcx", "r11", "memory");
    return (int)result;
#elif defined __aarch64__
    register long number __asm__("x8") = 57;
    register long result __asm__("x0") = fd;
    __asm__ volatile("svc 0" : "+r"(result) : "r"(number) : "memory");
    return (int)result;
#else
    return close(fd);
#endif
}

/* Makes the number of a descriptor that of another file. */
static void replace(int fd, FILE *stream, enum way way, const char *other)
{
    int next = way == DUP2 ? open(other, O_RDWR | O_DIRECT) : -1;

    switch (way) {
    case CLOSE:
        MUST(close(fd) == 0);
        break;
    case FCLOSE:
        MUST(fclose(stream) == 0);
        break;
    case INLINE_CLOSE:
        MUST(inline_close(fd) == 0);
        break;
    default:
        MUST(next >= 0 && dup2(next, fd) == fd && close(next) == 0);
        return;
    }
    /* The lowest free number is that of the closed one. */
    MUST(open(other, O_RDWR | O_DIRECT) == fd);
}

/* The reads that were in flight have the data of the first file, and later ones those of the other.
 * Writes go to the file that had the number when they were submitted. */
static void rounds(void *context, enum way way, const char *path, const char *other)
{
    int wrong_results = 0, wrong_blocks = 0;

    for (int round = 0; round < NR_ROUNDS; round++) {
        int fd = open(path, O_RDWR | O_DIRECT);
        FILE *stream = way == FCLOSE ? fdopen(fd, "r+") : NULL;
        struct batch *reads, *writes, *later;
        int at = round % (NR_BLOCKS - NR);

        MUST(fd >= 0 && (way != FCLOSE || stream != NULL));
        reads = batch_of(PREAD, fd, at, NR, 1);
        writes = batch_of(PWRITE, fd, at, NR, 1);
        MUST(io_submit(context, NR, reads->list) == NR);
        MUST(io_submit(context, NR, writes->list) == NR);
        replace(fd, stream, way, other);
        later = batch_of(PREAD, fd, at, NR, 2);
        MUST(io_submit(context, NR, later->list) == NR);
        wrong_results += reap(context, 3 * NR);
        wrong_blocks += nr_wrong(reads->memory, at, NR, 1);
        wrong_blocks += nr_wrong(later->memory, at, NR, 2);
        MUST(close(fd) == 0);
        batch_free(reads);
        batch_free(writes);
        batch_free(later);
    }
    printf("%s: %d wrong results, %d wrong blocks\n", names[way], wrong_results, wrong_blocks);
}

int main(int argc, char **argv)
{
    char other[4096];
    void *context = NULL;

    if (argc != 2)
        return 2;
    snprintf(other, sizeof other, "%s.other", argv[1]);
    make_file(argv[1], NR_BLOCKS, 1);
    make_file(other, NR_BLOCKS, 2);
    MUST(io_setup(3 * NR, &context) == 0);
    for (int way = 0; way < NR_WAYS; way++)
        rounds(context, way, argv[1], other);
    show("destroy", io_destroy(context));
    show("wrong blocks in the file", nr_wrong_in(argv[1], NR_BLOCKS, 1));
    show("wrong blocks in the other file", nr_wrong_in(other, NR_BLOCKS, 2));
    return 0;
}
