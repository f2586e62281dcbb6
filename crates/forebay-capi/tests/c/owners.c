/* Owners: limits, weights, latency goals, counters, children, and I/O for an owner. */
#include "check.h"

#include <stddef.h>

static char memory[16][512];

static uint64_t owner_counter(struct forebay_owner *owner, const char *name)
{
    uint64_t value = 0;
    CHECK(forebay_owner_stats_get(owner, name, &value) == 0);
    return value;
}

static uint64_t limit(struct forebay_owner *owner, const char *key)
{
    uint64_t value = 77;
    CHECK(forebay_owner_limit(owner, key, &value) == 0);
    return value;
}

/* Reads nr blocks for the owner with this number. */
static void read_for(struct forebay_disk *disk, uint32_t number, uint32_t nr)
{
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io ios[16];
    struct forebay_completion done[16];

    for (uint32_t n = 0; n < nr; n++) {
        ios[n] = read_of(memory[n], 512, 4096 * n, n);
        ios[n].owner = number;
        ios[n].priority = n % 2 == 0 ? 0 : FOREBAY_PRIORITY_IDLE;
    }
    CHECK(forebay_queue_submit(queue, ios, nr) == (int)nr);
    CHECK(forebay_queue_reap(queue, done, nr, nr, -1) == (int)nr);
    for (uint32_t n = 0; n < nr; n++)
        CHECK(done[n].result == 512);
    CHECK(forebay_queue_close(queue) == 0);
}

int main(void)
{
    struct forebay_disk *disk = open_disk("ram:1M?nr_hw_queues=1&scheduler=mq-deadline");
    struct forebay_owner *tenant, *same, *child, *other, *none = NULL;
    struct forebay_queue *queue = open_queue(disk);
    struct forebay_io io = read_of(memory[0], 512, 0, 1);
    const struct forebay_option slow[] = {
        {"iops", "100"}, {"iops_burst", "2"}, {"read_bps", "10m"}, {"latency_target_us", "2000"}};
    const struct forebay_option burst[] = {{"bps_burst", "1m"}};
    const struct forebay_option unknown[] = {{"iops", "1"}, {"speed", "1"}};
    uint64_t value;

    /* Where earlier headers had a reserved field. */
    CHECK(sizeof io == 64 && offsetof(struct forebay_io, owner) == 60);
    /* A name belongs to one owner, of which there may be several handles. */
    CHECK(forebay_owner_open(disk, "tenant", &tenant) == 0);
    CHECK(forebay_owner_open(disk, "tenant", &same) == 0);
    CHECK(forebay_owner_number(tenant) > 0);
    CHECK(forebay_owner_number(tenant) == forebay_owner_number(same));
    CHECK(forebay_owner_close(same) == 0);
    CHECK_FAILS(forebay_owner_close(same), EBADF, "the owner is closed");
    CHECK(forebay_owner_child(tenant, "job", &child) == 0);
    CHECK(forebay_owner_open(disk, "other", &other) == 0);
    CHECK(forebay_owner_number(child) != forebay_owner_number(tenant));
    CHECK_FAILS(forebay_owner_open(disk, "job", &none), EEXIST, "choose another name");
    CHECK_FAILS(forebay_owner_open(disk, "", &none), EINVAL, "name is empty");

    /* The limits are replaced together, or not at all. */
    CHECK(forebay_owner_set_limits(tenant, slow, 4) == 0);
    CHECK(limit(tenant, "iops") == 100 && limit(tenant, "iops_burst") == 2);
    CHECK(limit(tenant, "read_bps") == 10 << 20 && limit(tenant, "latency_target_us") == 2000);
    CHECK(limit(tenant, "write_bps") == 0 && limit(child, "iops") == 0);
    CHECK_FAILS(forebay_owner_set_limits(tenant, burst, 1), EINVAL, "bps above 0");
    CHECK_FAILS(forebay_owner_set_limits(tenant, unknown, 2), EINVAL, "speed=1: expected one of");
    CHECK(limit(tenant, "iops") == 100);

    /* I/O of a child counts against the limits above, and waits for them. */
    read_for(disk, (uint32_t)forebay_owner_number(child), 6);
    CHECK(owner_counter(child, "ios") == 6 && owner_counter(child, "bytes") == 6 * 512);
    CHECK(owner_counter(child, "limit_waits") > 0 && owner_counter(child, "limit_wait_ns") > 0);
    CHECK(owner_counter(tenant, "ios") == 0 && owner_counter(other, "ios") == 0);
    CHECK(owner_counter(child, "depth") == UINT64_MAX);

    /* Without limits it does not wait; nor does I/O of others. */
    CHECK(forebay_owner_set_limits(tenant, NULL, 0) == 0 && limit(tenant, "iops") == 0);
    value = owner_counter(child, "limit_waits");
    read_for(disk, (uint32_t)forebay_owner_number(child), 16);
    CHECK(owner_counter(child, "limit_waits") == value && owner_counter(child, "ios") == 22);
    read_for(disk, 0, 4);
    CHECK(owner_counter(child, "ios") == 22 && owner_counter(tenant, "ios") == 0);

    CHECK(forebay_owner_weight(tenant) == 100);
    CHECK(forebay_owner_set_weight(tenant, 300) == 0 && forebay_owner_weight(tenant) == 300);
    CHECK_FAILS(forebay_owner_set_weight(tenant, 0), EINVAL, "from 1 to 10000");
    CHECK_FAILS(forebay_owner_set_weight(tenant, 10001), EINVAL, "from 1 to 10000");

    /* Each counter has a name and a meaning. */
    for (uint32_t n = 0; n < forebay_owner_stats_count(); n++) {
        CHECK(strlen(forebay_owner_stats_help(n)) > 5);
        owner_counter(other, forebay_owner_stats_name(n));
    }
    CHECK(forebay_owner_stats_name(forebay_owner_stats_count()) == NULL);
    CHECK(forebay_owner_stats_help(UINT32_MAX) == NULL);
    CHECK_FAILS(forebay_owner_stats_get(tenant, "speed", &value), ENOENT, "`speed`");
    CHECK_FAILS(forebay_owner_limit(tenant, "speed", &value), EINVAL, "one of the limits iops");

    /* A number that no owner can have is refused. One of no owner counts against none. */
    io.owner = 1 << 24;
    CHECK_FAILS(forebay_queue_submit(queue, &io, 1), EINVAL, "the owner 16777216");
    read_for(disk, (1 << 24) - 1, 1);

    CHECK_FAILS(forebay_owner_remove(tenant), EBUSY, "has children");
    CHECK(forebay_owner_remove(child) == 0);
    CHECK_FAILS(forebay_owner_remove(child), ENOENT, "removed before");
    CHECK_FAILS(forebay_owner_child(child, "deeper", &none), ENOENT, "was removed");
    CHECK(forebay_owner_close(child) == 0);
    CHECK(forebay_owner_remove(tenant) == 0 && forebay_owner_close(tenant) == 0);

    /* A handle keeps the disk open. */
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);
    CHECK(forebay_owner_set_weight(other, 7) == 0 && forebay_owner_weight(other) == 7);
    CHECK(forebay_owner_close(other) == 0);

    CHECK_FAILS(forebay_owner_open(NULL, "a", &none), EINVAL, "disk is NULL");
    CHECK_FAILS(forebay_owner_child(NULL, "a", &none), EINVAL, "owner is NULL");
    CHECK_FAILS(forebay_owner_close(NULL), EINVAL, "owner is NULL");
    CHECK_FAILS(forebay_owner_remove(NULL), EINVAL, "owner is NULL");
    CHECK_FAILS(forebay_owner_number(NULL), EINVAL, "owner is NULL");
    CHECK_FAILS(forebay_owner_weight(NULL), EINVAL, "owner is NULL");
    CHECK_FAILS(forebay_owner_set_weight(NULL, 1), EINVAL, "owner is NULL");
    CHECK_FAILS(forebay_owner_set_limits(NULL, NULL, 0), EINVAL, "owner is NULL");
    disk = open_disk("ram:1M?nr_hw_queues=2");
    CHECK_FAILS(forebay_owner_open(disk, NULL, &none), EINVAL, "name is NULL");
    CHECK_FAILS(forebay_owner_open(disk, "a", NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_owner_weight((void *)disk), EINVAL, "that of a disk");
    CHECK(forebay_owner_open(disk, "a", &other) == 0);
    CHECK_FAILS(forebay_owner_set_weight(other, 7), EINVAL, "nr_hw_queues=1");
    CHECK_FAILS(forebay_owner_set_limits(other, NULL, 1), EINVAL, "array of options is NULL");
    CHECK_FAILS(forebay_owner_limit(other, NULL, &value), EINVAL, "key is NULL");
    CHECK_FAILS(forebay_owner_limit(other, "iops", NULL), EINVAL, "result is NULL");
    CHECK_FAILS(forebay_owner_stats_get(other, NULL, &value), EINVAL, "name is NULL");
    CHECK_FAILS(forebay_owner_stats_get(other, "ios", NULL), EINVAL, "result is NULL");
    CHECK(forebay_owner_close(other) == 0 && forebay_close(disk) == 0);
    return 0;
}
