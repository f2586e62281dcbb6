/* A second end of a request is an error, however many requests have ended since. */
#include "check.h"

enum { NR = 1000, BLOCK = 512 };

static struct forebay_request *first, *held;
static bool holds;

/* Keeps the requests of a held block, and ends all others. */
static void submit(void *context, struct forebay_request **requests, uint32_t nr)
{
    CHECK(context == NULL);
    for (uint32_t n = 0; n < nr; n++) {
        if (holds) {
            held = requests[n];
            continue;
        }
        if (first == NULL)
            first = requests[n];
        CHECK(forebay_request_end(requests[n], BLOCK) == 0);
    }
}

int main(void)
{
    struct forebay_backend table = {
        .size = sizeof table,
        .name = "twice",
        .capacity = 1 << 20,
        .submit = submit,
    };
    struct forebay_disk *disk = NULL;
    static char block[BLOCK];
    struct forebay_io io = read_of(block, BLOCK, 0, 7);
    struct forebay_completion done[1];

    CHECK(forebay_backend_open(&table, &disk) == 0);
    struct forebay_queue *queue = open_queue(disk);
    for (int n = 0; n < NR; n++)
        CHECK(forebay_read(disk, block, BLOCK, 0) == BLOCK);
    CHECK_FAILS(forebay_request_end(first, 0), EBADF, "ended already");

    /* Another request is in flight. The stale handle neither ends nor describes it. */
    for (int n = 0; n < NR; n++) {
        holds = true;
        held = NULL;
        CHECK(forebay_queue_submit(queue, &io, 1) == 1);
        CHECK(held != NULL && held != first);
        CHECK_FAILS(forebay_request_end(first, -EIO), EBADF, "ended already");
        CHECK_FAILS(forebay_request_len(first), EBADF, "ended already");
        CHECK_FAILS(forebay_request_copy_from(first, 0, block, 1), EBADF, "ended already");
        CHECK(forebay_queue_reap(queue, done, 0, 1, 0) == 0);
        CHECK(forebay_request_len(held) == BLOCK && forebay_request_end(held, BLOCK) == 0);
        CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == BLOCK);
        holds = false;
    }

    /* Pointers that are not requests. */
    static uint64_t no_request[8];
    CHECK_FAILS(forebay_request_len((void *)no_request), EINVAL, "not a request");
    CHECK_FAILS(forebay_request_len((void *)disk), EINVAL, "not a request");
    CHECK_FAILS(forebay_request_end((void *)UINTPTR_MAX, 0), EINVAL, "not a request");
    CHECK_FAILS(forebay_flush((void *)first), EINVAL, "that of a request");
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    CHECK_FAILS(forebay_request_end(first, 0), EBADF, "ended already");
    return 0;
}
