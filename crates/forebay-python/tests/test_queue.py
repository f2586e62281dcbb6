"""Queues: lists of I/O, buffers in flight, threads, collection."""

import errno
import gc
import os
import select
import signal
import sys
import tempfile
import threading
import time
import unittest
import weakref

import forebay
from common import SLOW, SLOW_SECONDS, read_slowly, run, submit


class QueueTest(unittest.TestCase):
    def test_a_list_is_merged_and_returned(self):
        disk = forebay.Disk("ram:1M")
        disk.write_at(bytes(range(256)) * 64, 0)
        buffers = [bytearray(512) for _ in range(32)]
        ios = [forebay.Io.read(buffer, 512 * at) for at, buffer in enumerate(buffers)]
        with disk.queue() as queue:
            for _ in range(2):
                before = disk.stats()["issued"]
                self.assertEqual(queue.submit(ios), 32)
                self.assertEqual(queue.reap(32), ios)
                self.assertEqual(disk.stats()["issued"] - before, 1)
        self.assertEqual(b"".join(buffers), bytes(range(256)) * 64)
        self.assertTrue(all(io.result() == 512 for io in ios))

    def test_plugs_hold_io_back(self):
        disk = forebay.Disk("ram:1M")
        with disk.queue() as queue:
            with forebay.plug() as plug:
                for at in range(8):
                    submit(queue, forebay.Io.write(bytes(512), 512 * at))
                self.assertEqual(disk.stats()["issued"], 0)
                plug.unplug()
                self.assertEqual(disk.stats()["issued"], 1)
                submit(queue, forebay.Io.flush())
            self.assertEqual(len(queue.reap(9)), 9)

    def test_an_io_is_changed_and_used_again(self):
        disk = forebay.Disk("ram:1M")
        io = forebay.Io.write(b"a" * 512, 0, data="first")
        with disk.queue() as queue:
            submit(queue, io)
            queue.reap()
            io.offset, io.buffer, io.data = 512, b"b" * 512, "second"
            submit(queue, io)
            self.assertEqual([done.data for done in queue.reap()], ["second"])
            zero = forebay.Io.write_zeroes(0, 512)
            submit(queue, zero)
            queue.reap()
            zero.offset, zero.length = 512, 1024
            submit(queue, zero)
            queue.reap()
        self.assertEqual(disk.read_at(2048, 0), bytes(2048))

    def test_an_io_in_flight_is_left_alone(self):
        io, queue = forebay.Io.read(bytearray(512), 0), forebay.Disk(SLOW).queue()
        with self.assertRaisesRegex(RuntimeError, "was not submitted"):
            io.result()
        submit(queue, io)
        self.assertTrue(io.in_flight)
        with self.assertRaisesRegex(RuntimeError, "in flight"):
            io.result()
        with self.assertRaisesRegex(RuntimeError, "in flight"):
            io.offset = 512
        with self.assertRaisesRegex(RuntimeError, "in flight"):
            queue.submit([io])
        self.assertEqual(queue.reap()[0].result(), 512)
        self.assertFalse(io.in_flight)

    def test_a_refused_io_raises_only_if_it_is_the_first(self):
        disk = forebay.Disk("ram:1M")
        good = forebay.Io.read(bytearray(512), 0)
        bad = forebay.Io.read(bytearray(512), 1 << 20)
        with disk.queue() as queue:
            self.assertEqual(queue.submit([good, bad]), 1)
            with self.assertRaises(OSError) as caught:
                queue.submit([bad])
            self.assertEqual(caught.exception.errno, errno.ENXIO)
            with self.assertRaisesRegex(TypeError, "found int"):
                queue.submit([1])
            with self.assertRaises(RuntimeError):
                bad.result()
            bad.buffer.append(1)
            self.assertEqual(len(queue.reap()), 1)

    def test_a_full_queue_blocks_nothing(self):
        disk = forebay.Disk("ram:1M?nr_bios=4")
        ios = [forebay.Io.read(bytearray(512), 0) for _ in range(6)]
        with disk.queue() as queue:
            self.assertEqual(queue.submit(iter(ios)), 4)
            with self.assertRaisesRegex(BlockingIOError, "queue is full"):
                queue.submit(ios[4:])
            self.assertEqual(len(queue), 4)
            self.assertEqual(len(queue.reap(4)), 4)
            self.assertEqual(queue.submit(tuple(ios[4:])), 2)

    def test_a_failed_io_has_its_error(self):
        disk = forebay.Disk("fault:ram:1M?rule=read:io")
        with disk.queue() as queue:
            submit(queue, forebay.Io.read(bytearray(512), 0))
            (io,) = queue.reap()
            self.assertEqual(io.error.errno, errno.EIO)
            with self.assertRaises(OSError):
                io.result()

    def test_a_durable_point_is_waited_for(self):
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(4096)
            disk = forebay.Disk(file.name)
            with disk.queue() as queue:
                submit(queue, forebay.Io.write(bytes(512), 0), forebay.Io.write(b"a" * 512, 512))
                points = [io.durable_point for io in queue.reap(2)]
            self.assertGreater(min(points), 0)
            disk.wait_durable(max(points))
            self.assertEqual(disk.stats()["flush_requests"], 1)

    def test_a_wait_ends_at_its_timeout(self):
        queue = read_slowly(bytearray(512))
        start = time.monotonic()
        self.assertEqual(queue.reap(timeout=0.01), [])
        self.assertLess(time.monotonic() - start, SLOW_SECONDS)
        self.assertEqual(len(queue.reap(timeout=10)), 1)
        self.assertEqual(queue.reap(timeout=10), [])
        with self.assertRaises(ValueError):
            queue.reap(timeout=float("nan"))
        with self.assertRaisesRegex(ValueError, "more than max"):
            queue.reap(2, 1)

    def test_a_signal_interrupts_a_wait_with_a_timeout(self):
        def stop(*_):
            raise KeyboardInterrupt

        former = signal.signal(signal.SIGALRM, stop)
        try:
            queue = forebay.Disk("ram:1M?req_ns=1000000000").queue()
            submit(queue, forebay.Io.read(bytearray(512), 0))
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            start = time.monotonic()
            with self.assertRaises(KeyboardInterrupt):
                queue.reap(timeout=30)
            self.assertLess(time.monotonic() - start, 0.9)
        finally:
            signal.signal(signal.SIGALRM, former)
        self.assertEqual(len(queue.reap()), 1)

    def test_a_wait_that_is_interrupted_loses_no_completion(self):
        def stop(*_):
            raise KeyboardInterrupt

        former = signal.signal(signal.SIGALRM, stop)
        try:
            queue = forebay.Disk("ram:1M?req_ns=200000000").queue()
            submit(queue, *(forebay.Io.read(bytearray(512), 0, nomerge=True) for _ in range(4)))
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with self.assertRaises(KeyboardInterrupt):
                queue.reap(4, timeout=30)
        finally:
            signal.signal(signal.SIGALRM, former)
        self.assertEqual(len(queue), 4)
        self.assertEqual(len(queue.reap(1, 1)), 1)
        self.assertEqual(len(queue.reap(3)), 3)
        self.assertEqual(len(queue), 0)

    def test_neighbours_of_different_priorities_do_not_merge(self):
        def requests(*priorities):
            disk = forebay.Disk("ram:1M?scheduler=mq-deadline")
            ios = [
                forebay.Io.read(bytearray(512), 512 * n, priority=priority)
                for n, priority in enumerate(priorities)
            ]
            queue = disk.queue()
            queue.submit(ios)
            self.assertEqual([io.result() for io in queue.reap(len(ios))], [512] * len(ios))
            return disk.stats()["issued"]

        self.assertEqual(requests(None, ("best-effort", 4)), 1)
        self.assertEqual(requests(None, ("best-effort", 3)), 2)
        self.assertEqual(requests(("realtime", 0), ("realtime", 0), ("idle", 0)), 2)
        for create in (
            lambda priority: forebay.Io.read(bytearray(512), 0, priority=priority),
            lambda priority: forebay.Io.write(bytes(512), 0, priority=priority),
            lambda priority: forebay.Io.discard(0, 512, priority=priority),
            lambda priority: forebay.Io.write_zeroes(0, 512, priority=priority),
        ):
            create(("idle", 7))
            for wrong in (("rt", 0), ("idle/1", 0), ("idle", 8), ("idle", -1)):
                with self.assertRaisesRegex(ValueError, "priority: "):
                    create(wrong)

    def test_the_descriptor_is_readable_when_io_has_ended(self):
        queue = read_slowly(bytearray(512))
        self.assertEqual(select.select([queue], [], [], 0)[0], [queue])
        queue.reap(0)
        self.assertEqual(select.select([queue], [], [], 0)[0], [])
        self.assertEqual(select.select([queue], [], [], 10)[0], [queue])
        self.assertEqual(len(queue.reap(0)), 1)

    def test_a_reap_lets_other_threads_run(self):
        queue, steps = read_slowly(bytearray(512)), []
        is_done = threading.Event()

        def count():
            while not is_done.is_set():
                steps.append(time.monotonic())
                time.sleep(0.001)

        thread = threading.Thread(target=count)
        thread.start()
        queue.reap()
        is_done.set()
        thread.join()
        self.assertGreater(len(steps), 10)

    def test_other_threads_are_refused(self):
        queue, found = forebay.Disk("ram:1M").queue(), []

        def use():
            for call in (lambda: queue.submit([]), queue.reap, queue.close, queue.fileno):
                try:
                    call()
                except RuntimeError as error:
                    found.append(str(error))

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        self.assertEqual(len(found), 4)
        self.assertTrue(all("belongs to another thread" in text for text in found))

    def test_a_plug_is_ended_by_its_thread(self):
        found = []

        def end():
            try:
                plug.__exit__(None, None, None)
            except RuntimeError as error:
                found.append(str(error))

        with forebay.plug() as plug:
            thread = threading.Thread(target=end)
            thread.start()
            thread.join()
            with self.assertRaisesRegex(RuntimeError, "open already"):
                plug.__enter__()
        self.assertIn("not open on this thread", found[0])


class InFlightTest(unittest.TestCase):
    def test_a_buffer_keeps_its_size_until_its_completion(self):
        buffer = bytearray(b"a" * 512)
        queue = read_slowly(buffer)
        with self.assertRaises(BufferError):
            buffer.append(1)
        (io,) = queue.reap()
        buffer.append(1)
        self.assertEqual((io.result(), buffer[:512]), (512, bytes(512)))

    def test_a_buffer_lives_until_its_completion(self):
        queue = read_slowly(bytearray(512))
        gc.collect()
        (io,) = queue.reap()
        self.assertEqual(io.buffer, bytes(512))

    def test_memory_that_does_not_fit_is_refused(self):
        queue = forebay.Disk("ram:1M").queue()
        with self.assertRaisesRegex(BufferError, "read-only"):
            queue.submit([forebay.Io.read(bytes(512), 0)])
        with self.assertRaisesRegex(BufferError, "contiguous"):
            queue.submit([forebay.Io.write(memoryview(bytes(1024))[::2], 0)])
        with self.assertRaisesRegex(TypeError, "not NoneType"):
            queue.submit([forebay.Io.write(None, 0)])
        self.assertEqual(len(queue), 0)

    def test_a_queue_that_is_closed_waits(self):
        buffer, start = bytearray(b"a" * 512), time.monotonic()
        queue = read_slowly(buffer)
        io = forebay.Io.flush()
        submit(queue, io)
        queue.close()
        self.assertGreater(time.monotonic() - start, 0.9 * SLOW_SECONDS)
        self.assertTrue(queue.closed)
        self.assertEqual((buffer, io.result()), (bytes(512), 0))
        buffer.append(1)
        queue.close()
        with self.assertRaisesRegex(ValueError, "the queue is closed"):
            queue.submit([io])

    def test_a_queue_that_is_collected_waits(self):
        buffer, start = bytearray(b"a" * 512), time.monotonic()
        queue = read_slowly(buffer)
        del queue
        self.assertGreater(time.monotonic() - start, 0.9 * SLOW_SECONDS)
        self.assertEqual(buffer, bytes(512))
        buffer.append(1)

    def test_a_queue_in_a_circle_with_its_io_is_collected(self):
        class Marker:
            pass

        buffer, marker = bytearray(b"a" * 512), Marker()
        queue = forebay.Disk(SLOW).queue()
        marker.queue, gone = queue, weakref.ref(marker)
        submit(queue, forebay.Io.read(buffer, 0, data=marker))
        del queue, marker
        self.assertIsNotNone(gone())
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(buffer, bytes(512))
        buffer.append(1)

    def test_a_queue_that_another_thread_collects_is_closed_by_its_own(self):
        for last_call in ("disk.queue()", "other.submit([])", "other.reap(0)"):
            ended = run(
                "import threading, forebay\n"
                "kept, buffer = [], bytearray(b'a' * 512)\n"
                "disk = forebay.Disk('ram:1M?req_ns=100000000')\n"
                "kept.append(disk.queue()); other = disk.queue()\n"
                "io = forebay.Io.read(buffer, 0)\n"
                "kept[0].submit([io])\n"
                "thread = threading.Thread(target=kept.clear)\n"
                "thread.start(); thread.join()\n"
                "try:\n"
                "    buffer.append(1)\n"
                "except BufferError:\n"
                "    print('in flight')\n"
                f"{last_call}\n"
                "assert buffer == bytes(512) and io.result() == 512\n"
                "buffer.append(1)\n"
            )
            done = (ended.returncode, ended.stdout, ended.stderr)
            self.assertEqual(done, (0, "in flight\n", ""), last_call)

    def test_a_thread_that_ends_closes_its_queues(self):
        # The queue is collected before the thread ends, or after.
        for before in (True, False):
            ended = run(
                "import threading, forebay\n"
                f"before = {before}\n"
                "kept, buffer = [], bytearray(b'a' * 512)\n"
                "io, gone = forebay.Io.read(buffer, 0), threading.Event()\n"
                "def work():\n"
                "    kept.append(forebay.Disk('ram:1M?req_ns=100000000').queue())\n"
                "    kept[0].submit([io])\n"
                "    started.set()\n"
                "    if before: gone.wait()\n"
                "started = threading.Event()\n"
                "thread = threading.Thread(target=work)\n"
                "thread.start(); started.wait()\n"
                "if before:\n"
                "    kept.clear(); gone.set()\n"
                "thread.join()\n"
                # `join` returns a little before the thread has ended.
                "import time\n"
                "for _ in range(1000):\n"
                "    if buffer == bytes(512): break\n"
                "    time.sleep(0.01)\n"
                "kept.clear()\n"
                "for _ in range(1000):\n"
                "    forebay.Disk('ram:1M').queue().close()\n"
                "    try:\n"
                "        buffer.append(1)\n"
                "        break\n"
                "    except BufferError:\n"
                "        time.sleep(0.01)\n"
                "assert len(buffer) == 513 and io.result() == 512\n"
            )
            self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (0, "", ""))

    def test_a_closed_queue_may_end_on_any_thread(self):
        ended = run(
            "import threading, forebay\n"
            "kept = []\n"
            "def work():\n"
            "    kept.append(forebay.Disk('ram:1M').queue())\n"
            "    kept[0].close()\n"
            "thread = threading.Thread(target=work)\n"
            "thread.start(); thread.join()\n"
            "kept.clear()\n"
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_an_interpreter_ends_with_io_in_flight(self):
        ended = run(
            "import forebay\n"
            "buffers = [bytearray(512) for _ in range(8)]\n"
            "queue = forebay.Disk('ram:1M?req_ns=20000000').queue()\n"
            "queue.submit([forebay.Io.read(buffer, 0, nomerge=True) for buffer in buffers])\n"
            "forebay.keep = queue\n"
            "import sys; sys.keep = queue\n"
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_an_interpreter_ends_while_a_daemon_thread_waits(self):
        ended = run(
            "import threading, time, forebay\n"
            "def work():\n"
            "    queue = forebay.Disk('ram:1M?req_ns=300000000').queue()\n"
            "    queue.submit([forebay.Io.read(bytearray(512), 0)])\n"
            "    queue.reap()\n"
            "threading.Thread(target=work, daemon=True).start()\n"
            "time.sleep(0.1)\n"
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_child_of_a_fork_is_refused(self):
        ended = run(
            "import os, signal, forebay\n"
            "disk = forebay.Disk('ram:1M?req_ns=50000000')\n"
            "queue, buffer = disk.queue(), bytearray(512)\n"
            "queue.submit([forebay.Io.read(buffer, 0)])\n"
            "child = os.fork()\n"
            "if child == 0:\n"
            "    signal.alarm(20)\n"
            "    nr = 0\n"
            "    for call in (lambda: disk.read_at(512, 0),\n"
            "                 lambda: queue.submit([forebay.Io.flush()])):\n"
            "        try:\n"
            "            call()\n"
            "        except OSError as error:\n"
            "            nr += 'fork' in str(error)\n"
            "    queue.close(); disk.close()\n"
            "    del queue\n"
            "    nr += len(forebay.Disk('ram:1M').read_at(512, 0)) == 512\n"
            "    os._exit(nr)\n"
            "assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3\n"
            "assert queue.reap()[0].result() == 512\n"
        )
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))

    def test_a_second_interpreter_is_refused(self):
        ended = run(
            "import forebay, sys\n"
            "try:\n"
            "    import _xxsubinterpreters as interpreters\n"
            "except ImportError:\n"
            "    sys.exit(77)\n"
            "code = 'try: import forebay\\nexcept ImportError as error: print(error)'\n"
            "interpreters.run_string(interpreters.create(), code)\n"
            "print(forebay.Disk('ram:1M').size)\n"
        )
        if ended.returncode == 77:
            self.skipTest("this Python has no module for subinterpreters")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertRegex(ended.stdout, "(in use by another|does not support).*\n1048576\n")

    def test_a_thousand_disks_leak_nothing(self):
        def use():
            disk = forebay.Disk("ram:64K?req_ns=1000")
            queue, io = disk.queue(), forebay.Io.read(bytearray(4096), 0)
            queue.fileno()
            submit(queue, io)
            with self.assertRaises(OSError):
                disk.read_at(512, 1 << 20)
            disk.readinto(bytearray(512), 0)

        def sizes():
            gc.collect()
            with open("/proc/self/statm", encoding="ascii") as file:
                pages = int(file.read().split()[1])
            return len(os.listdir("/proc/self/fd")), len(gc.get_objects()), pages

        for _ in range(100):
            use()
        fds, objects, pages = sizes()
        for _ in range(1000):
            use()
        more_fds, more_objects, more_pages = sizes()
        self.assertEqual(more_fds, fds)
        self.assertLess(more_objects - objects, 100)
        # A leak of 4 KiB by each would be a thousand pages.
        self.assertLess(more_pages - pages, 500)


class ForeignCodeTest(unittest.TestCase):
    def test_an_object_that_ends_in_a_setter_may_use_the_queue(self):
        queue, done = forebay.Disk("ram:1M").queue(), []

        class Reaper:
            def __del__(self):
                done.extend(queue.reap(0))

        io = forebay.Io.read(bytearray(512), 0, data=Reaper())
        submit(queue, io)
        io.data = None
        self.assertEqual(done, [io])
        self.assertEqual(io.result(), 512)

    @unittest.skipIf(sys.version_info < (3, 12), "buffers in Python are there from 3.12 on")
    def test_a_buffer_in_python_may_use_the_queue(self):
        queue, memory, steps = forebay.Disk("ram:1M").queue(), bytearray(512), []

        class Memory:
            def __buffer__(self, flags):
                steps.append(len(queue.reap(1)))
                return memoryview(memory)

            def __release_buffer__(self, view):
                steps.append(len(queue.reap(0)))

        first, second = forebay.Io.read(bytearray(512), 0), forebay.Io.read(Memory(), 1024)
        self.assertEqual(queue.submit([first, second]), 2)
        self.assertEqual(steps, [1])
        self.assertEqual(queue.reap(1), [second])
        self.assertEqual((steps, first.result(), second.result()), ([1, 0], 512, 512))
