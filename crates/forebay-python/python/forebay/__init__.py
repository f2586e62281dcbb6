"""Forebay: a multi-queue block layer in user space.

A Disk has blocking calls. A Queue takes lists of Io, whose buffers are used without a copy. An
AsyncDisk has the I/O calls as coroutines for asyncio. An Owner limits the I/O of a tenant. See docs/python.md of the project.
"""

from ._aio import AsyncDisk
from ._forebay import Disk, GroupCommit, Io, Owner, Plug, Queue, __version__, counters, plug

__all__ = ["AsyncDisk", "Disk", "GroupCommit", "Io", "Owner", "Plug", "Queue", "counters", "plug"]
