/* Changes of a disk in use: the scheduler, nr_requests, and the measure of weights. */
#include "check.h"

static void has(struct forebay_disk *disk, const char *key, const char *expected)
{
    char text[32];
    CHECK(forebay_scheduler(disk, key, text, sizeof text) == (int)strlen(expected));
    CHECK(strcmp(text, expected) == 0);
}

int main(void)
{
    static char memory[512];
    struct forebay_disk *disk = open_disk("ram:1M?nr_hw_queues=1&req_ns=1000000");
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io io = read_of(memory, 512, 0, 1);
    struct forebay_completion done;
    struct forebay_hold *hold;
    const struct forebay_option deadline[] = {{"scheduler", "mq-deadline"}, {"device_depth", "2"}};
    const struct forebay_option batch[] = {{"fifo_batch", "4"}};
    const struct forebay_option kyber[] = {{"scheduler", "kyber"}};
    const struct forebay_option wrong[] = {{"scheduler", "none"}, {"fifo_batch", "0"}};
    const struct forebay_option other[] = {{"queue_depth", "4"}};
    const struct forebay_option too_deep[] = {{"device_depth", "5000"}};
    const struct forebay_option by[] = {{"weight_by", "ios"}, {"cost_read_io_ns", "20k"}};
    char text[4];

    has(disk, "scheduler", "none");
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, &done, 1, 1, -1) == 1);
    CHECK(forebay_set_scheduler(disk, deadline, 2, -1) == 0);
    has(disk, "scheduler", "mq-deadline");
    has(disk, "device_depth", "2");
    has(disk, "fifo_batch", "16");
    /* Settings that are not given stay, also beside a wrong one. */
    CHECK(forebay_set_scheduler(disk, batch, 1, 1000) == 0);
    has(disk, "scheduler", "mq-deadline");
    has(disk, "device_depth", "2");
    has(disk, "fifo_batch", "4");
    CHECK_FAILS(forebay_set_scheduler(disk, wrong, 2, -1), EINVAL, "fifo_batch=0");
    CHECK_FAILS(forebay_set_scheduler(disk, other, 1, -1), EINVAL, "one of the keys scheduler");
    CHECK_FAILS(forebay_set_scheduler(disk, too_deep, 1, -1), EINVAL, "device_depth=5000");
    has(disk, "scheduler", "mq-deadline");
    CHECK(forebay_scheduler(disk, "scheduler", text, sizeof text) == 11);
    CHECK(strcmp(text, "mq-") == 0 && forebay_scheduler(disk, "scheduler", NULL, 0) == 11);
    CHECK_FAILS(forebay_scheduler(disk, "queue_depth", text, sizeof text), ENOENT, "queue_depth");

    /* A change waits for admitted I/O, and fails if a hold keeps it from the device. */
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_set_scheduler(disk, kyber, 1, -1) == 0);
    CHECK(forebay_queue_reap(queue, &done, 1, 1, -1) == 1 && done.result == 512);
    has(disk, "scheduler", "kyber");
    CHECK(forebay_quiesce(disk, &hold) == 0);
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK_FAILS(forebay_set_scheduler(disk, deadline, 2, 100), EBUSY, "quiesced");
    CHECK(forebay_release(hold) == 0);
    CHECK(forebay_queue_reap(queue, &done, 1, 1, -1) == 1 && done.result == 512);
    has(disk, "scheduler", "kyber");

    CHECK(forebay_set_nr_requests(disk, 8) == 0);
    CHECK_FAILS(forebay_set_nr_requests(disk, 0), EINVAL, "nr_requests=0");
    CHECK_FAILS(forebay_set_nr_requests(disk, UINT32_MAX), EINVAL, "queue_depth");
    CHECK(forebay_set_weight_by(disk, by, 2) == 0);
    CHECK(forebay_set_weight_by(disk, NULL, 0) == 0);
    CHECK_FAILS(forebay_set_weight_by(disk, kyber, 1), EINVAL, "one of the keys weight_by");
    CHECK_FAILS(forebay_set_weight_by(disk, NULL, 1), EINVAL, "array of options is NULL");
    CHECK_FAILS(forebay_set_scheduler(disk, NULL, 1, 0), EINVAL, "array of options is NULL");
    CHECK_FAILS(forebay_set_scheduler(NULL, kyber, 1, 0), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_set_nr_requests(NULL, 1), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_set_weight_by(NULL, by, 1), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_scheduler(NULL, "scheduler", text, 4), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_scheduler(disk, NULL, text, 4), EINVAL, "key is NULL");
    CHECK_FAILS(forebay_scheduler(disk, "scheduler", NULL, 4), EINVAL, "result is NULL");
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);

    /* A scheduler orders the requests of one hardware context. */
    disk = open_disk("ram:1M?nr_hw_queues=2");
    CHECK_FAILS(forebay_set_scheduler(disk, kyber, 1, -1), EINVAL, "nr_hw_queues=1");
    CHECK(forebay_close(disk) == 0);
    return 0;
}
