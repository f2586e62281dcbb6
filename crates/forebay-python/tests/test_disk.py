"""Blocking calls, properties, counters and failures."""

import array
import errno
import mmap
import os
import tempfile
import threading
import time
import unittest

import forebay
from common import SLOW


class DiskTest(unittest.TestCase):
    def test_data_is_read_as_it_was_written(self):
        with forebay.Disk.open("ram:1M") as disk:
            self.assertEqual(disk.size, 1 << 20)
            self.assertEqual(disk.write_at(b"x" * 4096, 8192), 4096)
            disk.flush()
            self.assertEqual(disk.read_at(512, 8192), b"x" * 512)
            disk.write_zeroes(8192, 512)
            buffer = bytearray(1024)
            self.assertEqual(disk.readinto(buffer, 8192), 1024)
            self.assertEqual(buffer, bytes(512) + b"x" * 512)

    def test_items_of_any_size_are_memory(self):
        disk = forebay.Disk("ram:1M")
        numbers = array.array("d", range(64))
        self.assertEqual(disk.write_at(numbers, 0), 512)
        back = array.array("d", [0]) * 64
        self.assertEqual(disk.readinto(back, 0), 512)
        self.assertEqual(back, numbers)

    def test_a_file_is_discarded_grown_and_synced(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "disk.img")
            with open(path, "wb") as file:
                file.truncate(4096)
            with forebay.Disk(path) as disk:
                disk.write_at(b"a" * 4096, 0, durable=True)
                disk.fsync()
                os.truncate(path, 8192)
                disk.grow()
                self.assertEqual(disk.size, 8192)
                disk.write_at(b"b" * 4096, 4096)
                disk.flush()
                self.assertFalse(disk.acknowledge_loss())
            with open(path, "rb") as file:
                self.assertEqual(file.read(), b"a" * 4096 + b"b" * 4096)

    def test_a_read_at_the_end_of_a_growing_file_is_short(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "log")
            with open(path, "wb") as file:
                file.write(b"c" * 512)
            disk = forebay.Disk(path + "?capacity=growing")
            self.assertIsNone(disk.size)
            self.assertEqual(disk.read_at(1024, 0), b"c" * 512)

    def test_direct_io_takes_memory_of_any_alignment_except_without_a_copy(self):
        with tempfile.TemporaryDirectory(dir=os.getcwd()) as folder:
            path = os.path.join(folder, "disk.img")
            with open(path, "wb") as file:
                file.truncate(65536)
            try:
                disk = forebay.Disk(path + "?direct=on")
            except OSError as error:
                self.assertIn("does not support direct I/O", str(error))
                self.skipTest("this file system has no direct I/O")
            data = bytes(range(256)) * 16
            with memoryview(data + b"z")[1:] as odd:
                self.assertEqual(disk.write_at(odd, 0), 4096)
                self.assertEqual(disk.read_at(4096, 0), odd)
            aligned = mmap.mmap(-1, 4096)
            self.assertEqual(disk.readinto(aligned, 0), 4096)
            self.assertEqual(aligned[:], data[1:] + b"z")
            if disk.info()["memory_alignment"] > 1:
                with self.assertRaises(OSError) as caught:
                    disk.readinto(memoryview(bytearray(8192))[1:4097], 0)
                self.assertEqual(caught.exception.errno, errno.EINVAL)

    def test_failures_have_an_errno_and_a_text(self):
        with self.assertRaisesRegex(FileNotFoundError, "no such file"):
            forebay.Disk("/no/such/folder/disk.img")
        with self.assertRaisesRegex(OSError, "unknown key `color`") as caught:
            forebay.Disk("ram:1M?color=red")
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        disk = forebay.Disk("ram:1M")
        with self.assertRaises(OSError) as caught:
            disk.read_at(512, 1 << 20)
        self.assertEqual(caught.exception.errno, errno.ENXIO)
        with self.assertRaises(OSError) as caught:
            disk.write_at(b"a", 0)
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        with self.assertRaises(OverflowError):
            disk.read_at(512, -1)

    def test_a_failed_write_is_an_error_of_its_kind(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "disk.img")
            with open(path, "wb") as file:
                file.truncate(4096)
            disk = forebay.Disk(f"fault:{path}?rule=write:nospace")
            with self.assertRaises(OSError) as caught:
                disk.write_at(bytes(512), 0)
            self.assertEqual(caught.exception.errno, errno.ENOSPC)

    def test_a_closed_disk_is_refused(self):
        disk = forebay.Disk("ram:1M")
        self.assertFalse(disk.closed)
        disk.close()
        disk.close()
        self.assertTrue(disk.closed)
        for call in (disk.flush, disk.queue, disk.info, lambda: disk.read_at(512, 0)):
            with self.assertRaisesRegex(ValueError, "the disk is closed"):
                call()

    def test_properties_and_counters_have_names(self):
        disk = forebay.Disk("ram:1M")
        info = disk.info()
        self.assertEqual((info["driver"], info["capacity"]), ("ram", 1 << 20))
        self.assertIn("nr_bios", info["settings"])
        self.assertEqual((info["settings"]["iostats"], info["settings"]["service"]), (True, False))
        self.assertEqual((info["failed"], info["failure"], info["notice"]), (False, None, None))
        self.assertGreater(info["max_segments"], 0)
        self.assertTrue(all(len(state) == 2 for state in info["features"].values()))
        disk.write_at(bytes(512), 0)
        stats = disk.stats()
        self.assertEqual((stats["issued"], stats["write_bytes"]), (1, 512))
        self.assertEqual(set(forebay.counters()), set(stats))

    def test_a_wait_lets_other_threads_run(self):
        disk, steps = forebay.Disk(SLOW), []
        thread = threading.Thread(target=lambda: disk.read_at(512, 0))
        thread.start()
        while thread.is_alive():
            steps.append(time.monotonic())
            time.sleep(0.001)
        # A call that kept the GIL would allow one or two.
        self.assertGreater(len(steps), 10)


class BufferTest(unittest.TestCase):
    def test_read_only_memory_is_refused_for_reads(self):
        disk = forebay.Disk("ram:1M")
        for buffer in (bytes(512), memoryview(bytes(512))):
            with self.assertRaisesRegex(BufferError, "is read-only"):
                disk.readinto(buffer, 0)

    def test_memory_with_gaps_is_refused(self):
        disk, gaps = forebay.Disk("ram:1M"), memoryview(bytearray(1024))[::2]
        for call in (disk.readinto, disk.write_at):
            with self.assertRaisesRegex(BufferError, "not one contiguous range"):
                call(gaps, 0)

    def test_an_object_without_memory_is_refused(self):
        disk = forebay.Disk("ram:1M")
        with self.assertRaisesRegex(TypeError, "an object with a buffer.*not str"):
            disk.write_at("text", 0)
