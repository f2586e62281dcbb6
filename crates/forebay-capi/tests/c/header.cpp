// A C++ program compiles with the header, and its calls have the names of C.
#include <forebay.h>

int main()
{
    forebay_disk *disk = nullptr;
    forebay_io io = {};
    forebay_completion done = {};
    char memory[512] = {};
    iovec iov = {memory, sizeof memory};

    io.size = sizeof io;
    io.op = FOREBAY_OP_FLUSH;
    if (forebay_open("ram:1M", &disk) != 0)
        return 1;
    if (forebay_writev(disk, &iov, 1, 0) != 512)
        return 2;
    forebay_queue *queue = nullptr;
    if (forebay_queue_open(disk, &queue) != 0 || forebay_queue_submit(queue, &io, 1) != 1)
        return 3;
    if (forebay_queue_reap(queue, &done, 1, 1, -1) != 1 || done.result != 0)
        return 4;
    return forebay_queue_close(queue) == 0 && forebay_close(disk) == 0 ? 0 : 5;
}
