"""Disks for asyncio: a queue whose descriptor the event loop watches."""

import asyncio
import mmap

from ._forebay import Disk, Io


class AsyncDisk:
    """The calls of a disk as coroutines, for the event loop that is running when it is created.

    I/O that is started in one round of the loop is submitted as one list at its end, so that
    neighbours merge. Cancelling a task does not cancel its I/O: the queue keeps the buffer until
    the I/O has ended. The attribute `disk` is the Disk, for all other calls.
    """

    def __init__(self, disk):
        """Opens a queue on a Disk, or on the disk that a spec names."""
        self._loop = asyncio.get_running_loop()
        self._owned = Disk(disk) if isinstance(disk, str) else None
        self.disk = disk if self._owned is None else self._owned
        self._alignment = self.disk.info()["memory_alignment"]
        self._queue = self.disk.queue()
        self._pending = []
        self._scheduled = False
        self._started = set()
        # Set while `close` waits: a future that the next completion ends.
        self._reaped = None
        self._loop.add_reader(self._queue.fileno(), self._reap)

    async def read_at(self, length, offset, *, priority=None, owner=None):
        """Reads `length` bytes at byte `offset`. Returns fewer only at the end of a file."""
        # A disk with direct I/O needs memory that begins at a page.
        is_plain = self._alignment == 1 or length == 0
        buffer = bytearray(length) if is_plain else mmap.mmap(-1, length)
        nr = await self._start(Io.read(buffer, offset, priority=priority, owner=owner))
        with memoryview(buffer) as view:
            return bytes(view[:nr])

    async def readinto(self, buffer, offset, *, priority=None, owner=None):
        """Reads into a writable buffer without a copy, and returns the number of bytes."""
        return await self._start(Io.read(buffer, offset, priority=priority, owner=owner))

    async def write_at(self, data, offset, *, durable=False, priority=None, owner=None):
        """Writes a buffer at byte `offset`, and returns the number of bytes.

        The buffer must not change until the write has ended. If the disk needs aligned memory, the
        data is copied, unless it is in an mmap.
        """
        if self._alignment != 1 and not isinstance(data, mmap.mmap):
            with memoryview(data) as view:
                source = view.cast("B")
                if source.nbytes > 0:
                    copy = mmap.mmap(-1, source.nbytes)
                    copy[:] = source
                    data = copy
        io = Io.write(data, offset, fua=durable, priority=priority, owner=owner)
        return await self._start(io)

    async def flush(self):
        """Makes every write that ended before this call durable."""
        await self._start(Io.flush())

    async def discard(self, offset, length, *, priority=None, owner=None):
        """Discards `length` bytes at byte `offset`."""
        await self._start(Io.discard(offset, length, priority=priority, owner=owner))

    async def write_zeroes(self, offset, length, *, priority=None, owner=None):
        """Makes `length` bytes at byte `offset` read as zeroes."""
        await self._start(Io.write_zeroes(offset, length, priority=priority, owner=owner))

    async def close(self):
        """Waits until all I/O has ended and closes the queue; also the disk, if it was a spec."""
        if self._queue.closed:
            return
        while waiting := [future for future in self._started if not future.done()]:
            await asyncio.wait(waiting)
        # I/O of cancelled tasks may still be in flight.
        while not self._queue.closed and len(self._queue) > 0:
            self._reaped = self._reaped or self._loop.create_future()
            await asyncio.shield(self._reaped)
        if self._queue.closed:
            return
        self._loop.remove_reader(self._queue.fileno())
        self._queue.close()
        if self._owned is not None:
            self._owned.close()

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exception):
        await self.close()

    def _start(self, io):
        """Submits an I/O at the end of this round of the loop. Returns the future of its result."""
        if self._queue.closed:
            raise ValueError("the disk is closed")
        future = self._loop.create_future()
        io.data = future
        self._started.add(future)
        future.add_done_callback(self._started.discard)
        self._pending.append(io)
        self._schedule()
        return future

    def _schedule(self):
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._submit)

    def _submit(self):
        self._scheduled = False
        if self._queue.closed:
            for io in self._pending:
                if not io.data.done():
                    io.data.set_exception(ValueError("the disk is closed"))
            self._pending = []
            return
        pending = [io for io in self._pending if not io.data.done()]
        self._pending = []
        while pending:
            try:
                del pending[: self._queue.submit(pending)]
            except BlockingIOError:
                # The queue is full: the next completions make room.
                self._pending = pending + self._pending
                break
            except Exception as error:
                pending.pop(0).data.set_exception(error)
        self._reap()

    def _reap(self):
        ended = self._queue.reap(0)
        for io in ended:
            future, io.data = io.data, None
            if future.done():
                continue
            error = io.error
            if error is None:
                future.set_result(io.result())
            else:
                future.set_exception(error)
        if ended and self._reaped is not None:
            self._reaped.set_result(None)
            self._reaped = None
        # Without a completion the queue is still full.
        if ended and self._pending:
            self._schedule()
