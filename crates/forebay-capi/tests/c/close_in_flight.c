/* Closing a queue waits for the I/O in flight, which uses memory of the caller. */
#include "check.h"

int main(void)
{
    /* 5 ms for each request. */
    struct forebay_disk *disk = open_disk("ram:1M?req_ns=5000000");
    struct forebay_queue *queue = open_queue(disk);
    enum { NR = 8 };
    struct forebay_io ios[NR];
    static char seven[512 * NR];
    char *memory[NR];

    memset(seven, 7, sizeof seven);
    for (int n = 0; n < NR; n++)
        CHECK(forebay_write(disk, seven, 512, n * 4096) == 512);
    for (int n = 0; n < NR; n++) {
        memory[n] = calloc(1, 512);
        ios[n] = read_of(memory[n], 512, n * 4096, n);
    }
    CHECK(forebay_queue_submit(queue, ios, NR) == NR);
    CHECK(forebay_close(disk) == 0);
    CHECK(forebay_queue_close(queue) == 0);
    for (int n = 0; n < NR; n++) {
        CHECK(memcmp(memory[n], seven, 512) == 0);
        free(memory[n]);
    }

    /* I/O that waits in a plug is issued, and waited for. */
    disk = open_disk("ram:1M");
    queue = open_queue(disk);
    char *page = calloc(1, 512);
    CHECK(forebay_write(disk, seven, 512, 0) == 512);
    CHECK(forebay_plug() == 0);
    ios[0] = read_of(page, 512, 0, 0);
    CHECK(forebay_queue_submit(queue, ios, 1) == 1);
    CHECK(forebay_queue_close(queue) == 0);
    CHECK(memcmp(page, seven, 512) == 0);
    free(page);
    CHECK(forebay_unplug() == 0);
    CHECK(forebay_close(disk) == 0);
    return 0;
}
