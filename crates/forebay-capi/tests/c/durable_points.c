/* Durable points of a file: a write has one, and a wait makes it durable. */
#include "check.h"

int main(int argc, char **argv)
{
    char spec[4096];
    static char memory[4096];
    struct forebay_completion done[1];
    uint64_t point = 0, after = 0, up_to = 0;

    CHECK(argc == 2);
    snprintf(spec, sizeof spec, "%s/durable.img", argv[1]);
    FILE *file = fopen(spec, "w");
    CHECK(file != NULL && fseek(file, (1 << 20) - 1, SEEK_SET) == 0 && fputc(0, file) == 0);
    CHECK(fclose(file) == 0);
    snprintf(spec, sizeof spec, "psync:%s/durable.img", argv[1]);
    struct forebay_disk *disk = open_disk(spec);
    struct forebay_queue *queue = open_queue(disk);

    struct forebay_io io = read_of(memory, 4096, 0, 1);
    io.op = FOREBAY_OP_WRITE;
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 4096);
    CHECK(done[0].durable_point > 0);
    CHECK(forebay_durable_test(disk, done[0].durable_point) == 0);
    CHECK(forebay_durable_wait(disk, done[0].durable_point) == 0);
    CHECK(forebay_durable_test(disk, done[0].durable_point) == 1);

    CHECK(forebay_write(disk, memory, 4096, 4096) == 4096);
    CHECK(forebay_durable_point(disk, &point) == 0 && point > done[0].durable_point);
    io = (struct forebay_io){
        .size = sizeof io, .op = FOREBAY_OP_FLUSH, .flags = FOREBAY_IO_UP_TO, .offset = point};
    CHECK(forebay_queue_submit(queue, &io, 1) == 1);
    CHECK(forebay_queue_reap(queue, done, 1, 1, -1) == 1 && done[0].result == 0);
    CHECK(forebay_durable_test(disk, point) == 1);
    CHECK(forebay_lost_writes(disk, &after, &up_to) == 0);
    CHECK(forebay_queue_close(queue) == 0 && forebay_close(disk) == 0);

    /* A failed flush is a loss until it is acknowledged. */
    snprintf(spec, sizeof spec, "fault:psync:%s/durable.img?rule=flush:io", argv[1]);
    disk = open_disk(spec);
    CHECK(forebay_write(disk, memory, 4096, 0) == 4096);
    CHECK_FAILS(forebay_flush(disk), EIO, "I/O error");
    CHECK(forebay_lost_writes(disk, &after, &up_to) == 1 && up_to > after);
    CHECK_FAILS(forebay_durable_wait(disk, up_to), EIO, "I/O error");
    CHECK(forebay_acknowledge_loss(disk, &after, NULL) == 1);
    CHECK(forebay_acknowledge_loss(disk, NULL, NULL) == 0);
    CHECK(forebay_lost_writes(disk, NULL, NULL) == 0);
    CHECK(forebay_close(disk) == 0);
    return 0;
}
