"""Disks for asyncio."""

import asyncio
import errno
import time
import unittest

import forebay
from common import SLOW


class AsyncDiskTest(unittest.IsolatedAsyncioTestCase):
    async def test_tasks_that_start_together_share_a_request(self):
        async with forebay.AsyncDisk("ram:1M") as disk:
            await asyncio.gather(*(disk.write_at(bytes([at]) * 512, 512 * at) for at in range(16)))
            self.assertEqual(disk.disk.stats()["issued"], 1)
            blocks = await asyncio.gather(*(disk.read_at(512, 512 * at) for at in range(16)))
            self.assertEqual(disk.disk.stats()["issued"], 2)
            self.assertEqual(blocks, [bytes([at]) * 512 for at in range(16)])
            buffer = bytearray(1024)
            self.assertEqual(await disk.readinto(buffer, 512), 1024)
            self.assertEqual(buffer, b"\1" * 512 + b"\2" * 512)
            await disk.write_zeroes(0, 512)
            await disk.flush()
        with self.assertRaises(ValueError):
            await disk.flush()

    async def test_the_loop_runs_while_io_is_in_flight(self):
        nr = 0

        async def count():
            nonlocal nr
            while True:
                nr += 1
                await asyncio.sleep(0.001)

        async with forebay.AsyncDisk(forebay.Disk(SLOW)) as disk:
            counting = asyncio.create_task(count())
            self.assertEqual(await disk.read_at(512, 0), bytes(512))
            counting.cancel()
        self.assertGreater(nr, 10)

    async def test_failures_reach_their_own_task(self):
        async with forebay.AsyncDisk("fault:ram:1M?rule=read:io") as disk:
            results = await asyncio.gather(
                disk.read_at(512, 0),
                disk.write_at(bytes(512), 0),
                disk.write_at(bytes(512), 1 << 20),
                disk.write_at("text", 0),
                disk.write_at(bytes(512), 512),
                return_exceptions=True,
            )
        self.assertEqual([results[0].errno, results[2].errno], [errno.EIO, errno.ENXIO])
        self.assertEqual([results[1], results[4]], [512, 512])
        self.assertIsInstance(results[3], TypeError)

    async def test_a_full_queue_takes_the_rest_later(self):
        async with forebay.AsyncDisk("ram:1M?nr_bios=4&req_ns=1000000") as disk:
            reads = (disk.read_at(512, 1024 * at) for at in range(20))
            self.assertEqual(await asyncio.gather(*reads), [bytes(512)] * 20)

    async def test_a_full_queue_is_not_polled(self):
        async with forebay.AsyncDisk(SLOW + "&nr_bios=1") as disk:
            start = time.process_time()
            await asyncio.gather(*(disk.read_at(512, 1024 * at) for at in range(3)))
            # All three take more than a second.
            self.assertLess(time.process_time() - start, 0.3)

    async def test_a_disk_is_closed_beside_io_that_has_just_ended(self):
        disk = forebay.AsyncDisk("ram:1M")
        for _ in range(3):
            reading = asyncio.create_task(disk.read_at(512, 0))
            await asyncio.sleep(0)
            await asyncio.wait_for(asyncio.gather(reading, disk.flush()), 10)
        await asyncio.gather(disk.read_at(512, 0), disk.close(), return_exceptions=True)

    async def test_a_cancelled_task_leaves_its_buffer_to_the_queue(self):
        buffer = bytearray(b"a" * 512)
        async with forebay.AsyncDisk(SLOW) as disk:
            task = asyncio.create_task(disk.readinto(buffer, 0))
            await asyncio.sleep(0.01)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            with self.assertRaises(BufferError):
                buffer.append(1)
        self.assertEqual(buffer, bytes(512))
        buffer.append(1)
