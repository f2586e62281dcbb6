"""Owners of I/O, and changes of a disk in use."""

import asyncio
import errno
import unittest

import forebay
from common import SLOW, submit


def write_for(disk, owner, nr, **options):
    """Writes blocks that do not merge for an owner."""
    with disk.queue() as queue:
        ios = [forebay.Io.write(bytes(512), 4096 * n, owner=owner, **options) for n in range(nr)]
        submit(queue, *ios)
        assert [io.result() for io in queue.reap(nr)] == [512] * nr


class OwnerTest(unittest.TestCase):
    def test_a_name_belongs_to_one_owner(self):
        disk = forebay.Disk("ram:1M")
        tenant, job = disk.owner("tenant"), disk.owner("tenant").child("job")
        self.assertEqual((tenant.name, job.name), ("tenant", "job"))
        self.assertEqual(sorted(owner.name for owner in disk.owners()), ["job", "tenant"])
        self.assertEqual(repr(tenant), "<forebay.Owner tenant>")
        for name, number in (("job", errno.EEXIST), ("", errno.EINVAL)):
            with self.assertRaises(OSError) as caught:
                disk.owner(name)
            self.assertEqual(caught.exception.errno, number)

    def test_io_of_a_child_waits_for_the_limits_above(self):
        disk = forebay.Disk("ram:1M")
        tenant = disk.owner("tenant")
        job = tenant.child("job")
        tenant.set_limits(iops=200, iops_burst=1, read_bps="10m", latency_target_us=2000)
        limits = tenant.limits()
        self.assertEqual((limits["iops"], limits["iops_burst"]), (200, 1))
        self.assertEqual((limits["read_bps"], limits["latency_target_us"]), (10 << 20, 2000))
        self.assertNotIn("write_bps", limits)
        write_for(disk, job, 4, priority=("idle", 0))
        stats = job.stats()
        self.assertEqual((stats["ios"], stats["bytes"], stats["depth"]), (4, 2048, None))
        self.assertGreater(stats["limit_waits"], 0)
        self.assertGreater(stats["limit_wait_ns"], 1000)
        self.assertEqual(tenant.stats()["ios"], 0)
        tenant.set_limits()
        self.assertEqual(tenant.limits(), {})
        write_for(disk, job, 50)
        self.assertEqual(job.stats()["limit_waits"], stats["limit_waits"])
        write_for(disk, None, 4)
        self.assertEqual((job.stats()["ios"], tenant.stats()["ios"]), (54, 0))

    def test_wrong_limits_change_nothing(self):
        tenant = forebay.Disk("ram:1M").owner("tenant")
        tenant.set_limits(iops=200)
        for wrong in ({"speed": 1}, {"iops": -1}, {"iops": "x"}, {"bps_burst": 1}):
            with self.assertRaises(OSError) as caught:
                tenant.set_limits(**wrong)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        with self.assertRaisesRegex(TypeError, "iops: expected"):
            tenant.set_limits(iops=1.5)
        self.assertEqual(tenant.limits()["iops"], 200)

    def test_a_weight_needs_one_context(self):
        tenant = forebay.Disk("ram:1M?nr_hw_queues=1").owner("tenant")
        self.assertEqual(tenant.weight, 100)
        tenant.weight = 300
        self.assertEqual(tenant.weight, 300)
        with self.assertRaisesRegex(OSError, "from 1 to 10000"):
            tenant.weight = 0
        with self.assertRaisesRegex(OSError, "nr_hw_queues=1"):
            forebay.Disk("ram:1M?nr_hw_queues=2").owner("tenant").weight = 7

    def test_a_removed_owner_is_refused(self):
        disk = forebay.Disk("ram:1M")
        tenant, same = disk.owner("tenant"), disk.owner("tenant")
        job = tenant.child("job")
        io = forebay.Io.read(bytearray(512), 0, owner=job)
        with self.assertRaises(OSError) as caught:
            tenant.remove()
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        job.remove()
        for use in (job.stats, job.limits, job.remove, job.set_limits, lambda: job.name):
            with self.assertRaisesRegex(ValueError, "owner was removed"):
                use()
        with self.assertRaisesRegex(ValueError, "owner was removed"):
            disk.queue().submit([io])
        self.assertFalse(io.in_flight)
        self.assertEqual(repr(job), "<forebay.Owner removed>")
        tenant.remove()
        with self.assertRaises(FileNotFoundError):
            same.remove()

    def test_an_owner_of_another_disk_is_refused(self):
        disk, other = forebay.Disk("ram:1M"), forebay.Disk("ram:1M")
        io = forebay.Io.read(bytearray(512), 0, owner=other.owner("tenant"))
        with self.assertRaisesRegex(ValueError, "another disk"):
            disk.queue().submit([io])
        with self.assertRaises(TypeError):
            forebay.Io.read(bytearray(512), 0, owner="tenant")

    def test_an_owner_keeps_the_disk_open(self):
        disk = forebay.Disk("ram:1M")
        tenant = disk.owner("tenant")
        disk.close()
        tenant.set_limits(iops=5)
        self.assertEqual(tenant.limits()["iops"], 5)
        with self.assertRaises(ValueError):
            disk.owner("tenant")


class AsyncOwnerTest(unittest.IsolatedAsyncioTestCase):
    async def test_coroutines_have_an_owner_and_a_priority(self):
        async with forebay.AsyncDisk("ram:1M?scheduler=mq-deadline") as disk:
            tenant = disk.disk.owner("tenant")
            await asyncio.gather(
                disk.read_at(512, 0, owner=tenant, priority=("realtime", 0)),
                disk.readinto(bytearray(512), 512, owner=tenant, priority=("realtime", 0)),
                disk.write_at(bytes(512), 4096, owner=tenant, priority=("idle", 7)),
                disk.discard(8192, 512, owner=tenant),
                disk.write_zeroes(16384, 512, owner=tenant),
            )
            self.assertEqual(tenant.stats()["ios"], 5)
            # Those of one priority have merged.
            self.assertEqual(disk.disk.stats()["issued"], 4)
            await asyncio.gather(
                disk.read_at(512, 0, priority=("idle", 0)),
                disk.read_at(512, 512, priority=("idle", 1)),
            )
            self.assertEqual(disk.disk.stats()["issued"], 6)
            with self.assertRaisesRegex(ValueError, "priority: "):
                await disk.read_at(512, 0, priority=("rt", 0))


class ChangeTest(unittest.TestCase):
    def test_the_scheduler_changes_while_the_disk_is_in_use(self):
        disk = forebay.Disk("ram:1M?nr_hw_queues=1&req_ns=1000000")
        self.assertEqual(disk.scheduler()["scheduler"], "none")
        queue = disk.queue()
        submit(queue, forebay.Io.read(bytearray(512), 0))
        disk.set_scheduler(scheduler="mq-deadline", device_depth=2, front_merges=False)
        self.assertEqual(queue.reap()[0].result(), 512)
        disk.set_scheduler(fifo_batch=4)
        expected = {"scheduler": "mq-deadline", "device_depth": 2, "fifo_batch": 4}
        self.assertLessEqual(expected.items(), disk.scheduler().items())
        self.assertEqual(disk.scheduler()["front_merges"], "off")
        for wrong in ({"scheduler": "cfq"}, {"fifo_batch": 0}, {"queue_depth": 4}):
            with self.assertRaises(OSError) as caught:
                disk.set_scheduler(**wrong)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        self.assertEqual(disk.scheduler()["fifo_batch"], 4)
        with self.assertRaises(TypeError):
            disk.set_scheduler(fifo_batch=None)

    def test_a_change_has_a_time_limit(self):
        disk = forebay.Disk(SLOW + "&nr_hw_queues=1")
        queue = disk.queue()
        submit(queue, forebay.Io.read(bytearray(512), 0))
        with self.assertRaises(TimeoutError):
            disk.set_scheduler(scheduler="kyber", timeout=0.01)
        self.assertEqual(disk.scheduler()["scheduler"], "none")
        self.assertEqual(queue.reap()[0].result(), 512)
        disk.set_scheduler(scheduler="kyber", timeout=10)

    def test_tags_and_the_measure_of_weights_change(self):
        disk = forebay.Disk("ram:1M")
        disk.set_nr_requests(8)
        for wrong in (0, 1 << 20):
            with self.assertRaisesRegex(OSError, "nr_requests"):
                disk.set_nr_requests(wrong)
        self.assertEqual(disk.weight_by()["weight_by"], "cost")
        disk.set_weight_by(weight_by="ios", cost_read_io_ns="20k")
        disk.set_weight_by(cost_write_io_ns=7)
        expected = {"weight_by": "ios", "cost_read_io_ns": 20480, "cost_write_io_ns": 7}
        self.assertLessEqual(expected.items(), disk.weight_by().items())
        for wrong in ({"weight_by": "x"}, {"scheduler": "none"}):
            with self.assertRaises(OSError):
                disk.set_weight_by(**wrong)


if __name__ == "__main__":
    unittest.main()
