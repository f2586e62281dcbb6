"""Disks of paths and descriptors, calls over several buffers, block status, group commit."""

import errno
import os
import resource
import tempfile
import threading
import time
import unittest

import forebay


class OpenTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(os.fsencode(folder.name), b"a ?x=1%3F \xff")
        with open(self.path, "wb") as file:
            file.truncate(1 << 16)

    def test_a_path_may_have_any_bytes(self):
        for path in (self.path, os.fsdecode(self.path)):
            with forebay.Disk.open_path(path) as disk:
                self.assertEqual(disk.size, 1 << 16)

    def test_options_are_keys_of_specs(self):
        with forebay.Disk.open_path(self.path, driver="psync", nr_requests=8, read_only=True) as disk:
            info = disk.info()
            self.assertEqual((info["driver"], info["read_only"]), ("psync", True))
            self.assertEqual(info["settings"]["nr_requests"], 8)
        for options, text in (
            ({"colour": "red"}, "colour"),
            ({"queue_depth": "many"}, "queue_depth=many"),
            ({"driver": "ram"}, "ram"),
        ):
            with self.assertRaisesRegex(OSError, text) as caught:
                forebay.Disk.open_path(self.path, **options)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        with self.assertRaisesRegex(TypeError, "queue_depth: expected"):
            forebay.Disk.open_path(self.path, queue_depth=1.5)
        with self.assertRaises(FileNotFoundError):
            forebay.Disk.open_path(self.path + b"x")

    def test_a_descriptor_stays_open(self):
        with open(self.path, "r+b", buffering=0) as file:
            os.unlink(self.path)
            with forebay.Disk.open_fd(file.fileno(), nr_requests=8) as disk:
                disk.write_at(b"x" * 512, 512)
            self.assertEqual(os.pread(file.fileno(), 512, 512), b"x" * 512)
            fd = file.fileno()
        with self.assertRaises(OSError) as caught:
            forebay.Disk.open_fd(fd)
        self.assertEqual(caught.exception.errno, errno.EBADF)

    def test_a_descriptor_is_not_duplicated_beyond_the_limit(self):
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        with open(self.path, "r+b", buffering=0) as file:
            # All numbers below that of the newest file are in use.
            resource.setrlimit(resource.RLIMIT_NOFILE, (file.fileno() + 1, limits[1]))
            try:
                for use in (forebay.Disk.open_fd, forebay.GroupCommit):
                    with self.assertRaises(OSError) as caught:
                        use(file.fileno())
                    self.assertEqual(caught.exception.errno, errno.EMFILE)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def test_holes_are_reported(self):
        with open(self.path, "r+b", buffering=0) as file:
            file.truncate(1 << 20)
            file.write(b"x" * (1 << 16))
            os.fsync(file.fileno())
            if os.lseek(file.fileno(), 0, os.SEEK_HOLE) != 1 << 16:
                self.skipTest("this file system reports no holes")
        with forebay.Disk.open_path(self.path) as disk:
            data, hole = 1 << 16, (1 << 20) - (1 << 16)
            self.assertEqual(disk.block_status(0, 1 << 20), [(data, "data"), (hole, "hole")])
        with forebay.Disk("ram:1M") as disk:
            self.assertEqual(disk.block_status(4096, 8192, max=1), [(8192, "data")])
            disk.close()
            with self.assertRaises(ValueError):
                disk.block_status(0, 512)


class VectoredTest(unittest.TestCase):
    def test_several_buffers_are_one_io(self):
        disk = forebay.Disk("ram:1M")
        self.assertEqual(disk.writev([b"a" * 512, b"", bytearray(b"b" * 1024)], 4096), 1536)
        self.assertEqual(disk.writev([b"c" * 512], 8192, durable=True), 512)
        self.assertEqual(disk.stats()["write_bios"], 2)
        parts = [bytearray(1024), memoryview(bytearray(512))]
        self.assertEqual(disk.readv(iter(parts), 4096), 1536)
        self.assertEqual(parts[0] + parts[1], b"a" * 512 + b"b" * 1024)
        self.assertEqual((disk.readv([], 0), disk.writev((), 0)), (0, 0))

    def test_a_call_that_fails_releases_its_buffers(self):
        disk, buffer = forebay.Disk("ram:1M"), bytearray(512)
        with self.assertRaisesRegex(BufferError, "read-only"):
            disk.readv([buffer, bytes(512)], 0)
        with self.assertRaises(OSError):
            disk.readv([buffer], 100)
        with self.assertRaises(TypeError):
            disk.writev(7, 0)
        buffer.append(1)


class CommitTest(unittest.TestCase):
    def sync_time(self, file):
        os.write(file.fileno(), bytes(1 << 16))
        began = time.monotonic()
        os.fsync(file.fileno())
        return time.monotonic() - began

    def test_threads_share_syncs(self):
        with tempfile.TemporaryFile() as file:
            commit = forebay.GroupCommit(file.fileno(), sync="all")

            start = threading.Barrier(4)

            def append():
                start.wait()
                for _ in range(20):
                    point = commit.point()
                    os.write(file.fileno(), bytes(1 << 16))
                    commit.commit(point)

            threads = [threading.Thread(target=append) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            stats = commit.stats()
            self.assertEqual((stats["commits"], stats["losses"]), (80, 0))
            commit.commit()
            self.assertFalse(commit.acknowledge_loss())
            if min(self.sync_time(file) for _ in range(5)) < 100e-6:
                self.skipTest("this file system syncs at once")
            self.assertLess(stats["syncs"], 80, "threads that arrive during a sync share the next one")

    def test_a_failed_sync_is_reported_until_it_is_acknowledged(self):
        reader, writer = os.pipe()
        commit = forebay.GroupCommit(writer)
        os.close(reader)
        os.close(writer)
        for _ in range(2):
            with self.assertRaises(OSError) as caught:
                commit.commit()
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        self.assertTrue(commit.acknowledge_loss())

    def test_wrong_arguments_are_refused(self):
        with self.assertRaisesRegex(ValueError, "sync="):
            forebay.GroupCommit(0, sync="some")
        with self.assertRaises(OSError) as caught:
            forebay.GroupCommit(-1)
        self.assertEqual(caught.exception.errno, errno.EBADF)
