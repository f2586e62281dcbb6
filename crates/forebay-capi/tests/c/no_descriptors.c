/* A reap with a limit loses no completion if the process can open no more descriptors. */
#include "check.h"

#include <sys/resource.h>

static struct forebay_request *kept;

/* Ends the first block at once, and keeps the request of any other. */
static void submit(void *context, struct forebay_request **requests, uint32_t nr)
{
    CHECK(context == NULL);
    for (uint32_t n = 0; n < nr; n++) {
        if (forebay_request_offset(requests[n]) == 0)
            CHECK(forebay_request_end(requests[n], 512) == 0);
        else
            kept = requests[n];
    }
}

int main(void)
{
    struct forebay_backend table = {
        .size = sizeof table,
        .name = "half",
        .capacity = 1 << 20,
        .submit = submit,
    };
    struct forebay_disk *disk = NULL;
    static char memory[2][512];
    struct forebay_io ios[2];
    struct forebay_completion done[2];

    CHECK(forebay_backend_open(&table, &disk) == 0);
    struct forebay_queue *queue = open_queue(disk);
    ios[0] = read_of(memory[0], 512, 0, 1);
    ios[1] = read_of(memory[1], 512, 65536, 2);
    CHECK(forebay_queue_submit(queue, ios, 2) == 2);
    struct rlimit none = {.rlim_cur = 0, .rlim_max = 0};
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);

    /* One has ended, and the wait for the other fails. */
    CHECK(forebay_queue_reap(queue, done, 2, 2, 1000) == 1);
    CHECK(done[0].user_data == 1 && done[0].result == 512);
    CHECK_FAILS(forebay_queue_reap(queue, done, 1, 2, 1000), EMFILE, "open files");
    CHECK(forebay_queue_len(queue) == 1 && kept != NULL);

    CHECK(forebay_request_end(kept, 512) == 0);
    CHECK(forebay_queue_reap(queue, done, 1, 2, 1000) == 1 && done[0].user_data == 2);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    return 0;
}
