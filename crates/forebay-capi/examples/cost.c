/*
 * The cost of the layer for a C program: random reads on a driver that does nothing, in batches of
 * 32. The same work as `cost batches` of the library's examples, whose instructions it is compared
 * with: `cargo xtask instructions`.
 */
#include <forebay.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEPTH = 32, BLOCK = 4096 };

static void check(int result)
{
    if (result < 0) {
        fprintf(stderr, "%s\n", forebay_last_error());
        exit(1);
    }
}

int main(int argc, char **argv)
{
    long nr = argc > 2 ? atol(argv[2]) : 1000000;
    char *memory = aligned_alloc(BLOCK, DEPTH * BLOCK);
    struct forebay_disk *disk;
    struct forebay_queue *queue;
    struct forebay_io ios[DEPTH];
    struct forebay_completion done[DEPTH];
    char *idle[DEPTH];
    uint64_t random = 1;

    check(forebay_open("null:1G", &disk));
    check(forebay_queue_open(disk, &queue));
    for (int n = 0; n < DEPTH; n++)
        idle[n] = memory + n * BLOCK;
    for (long batch = 0; batch < nr / DEPTH; batch++) {
        for (int n = 0; n < DEPTH; n++) {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            ios[n] = (struct forebay_io){
                .size = sizeof ios[n],
                .op = FOREBAY_OP_READ,
                .buf = idle[n],
                .len = BLOCK,
                .offset = random % 100000 * 2 * BLOCK,
                .user_data = (uint64_t)(uintptr_t)idle[n],
            };
        }
        check(forebay_queue_submit(queue, ios, DEPTH));
        int ended = forebay_queue_reap(queue, done, DEPTH, DEPTH, -1);
        check(ended - DEPTH);
        for (int n = 0; n < ended; n++)
            idle[n] = (char *)(uintptr_t)done[n].user_data;
    }
    check(forebay_queue_close(queue));
    check(forebay_close(disk));
    free(memory);
    return 0;
}
