/* Requests that exceed their time limit are reported, a few at a time. */
#define _GNU_SOURCE
#include "check.h"

enum { NR = 3 };

static struct forebay_request *kept[NR];
static int nr_kept;

static void submit(void *context, struct forebay_request **requests, uint32_t nr)
{
    CHECK(context == NULL);
    for (uint32_t n = 0; n < nr; n++)
        kept[nr_kept++] = requests[n];
}

int main(void)
{
    struct forebay_backend table = {
        .size = sizeof table,
        .name = "slow",
        .capacity = 1 << 20,
        .submit = submit,
        .settings = "io_timeout_ms=50&io_timeout_grace_ms=60000",
    };
    struct forebay_disk *disk = NULL;
    struct forebay_late late[NR + 1];
    struct forebay_io ios[NR];
    struct forebay_completion done[NR];
    static char memory[NR][512];

    CHECK(forebay_backend_open(&table, &disk) == 0);
    struct forebay_queue *queue = open_queue(disk);
    CHECK_FAILS(forebay_late_requests(NULL, late, NR), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_late_requests(disk, NULL, NR), EINVAL, "array of late requests");
    CHECK_FAILS(forebay_late_requests(disk, late, 0), EINVAL, "array of late requests");
    CHECK(forebay_late_requests(disk, late, NR) == 0);
    for (int n = 0; n < NR; n++)
        ios[n] = read_of(memory[n], 512, 65536 * n, n);
    CHECK(forebay_queue_submit(queue, ios, NR) == NR && nr_kept == NR);
    int nr = 0;
    for (int n = 0; nr < NR && n < 1000; n++) {
        CHECK(forebay_queue_reap(queue, done, 1, NR, 10) == 0);
        /* Room for one: the others stay. */
        int more = forebay_late_requests(disk, &late[nr], 1);
        CHECK(more >= 0);
        nr += more;
    }
    CHECK(nr == NR && forebay_late_requests(disk, &late[NR], 1) == 0);
    for (int n = 0; n < NR; n++) {
        CHECK(late[n].op == FOREBAY_OP_READ && late[n].len == 512);
        CHECK(late[n].stage == FOREBAY_LATE_STAGE_AWAITED);
        CHECK(forebay_request_end(kept[n], 512) == 0);
    }
    CHECK(forebay_queue_reap(queue, done, NR, NR, -1) == NR);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
