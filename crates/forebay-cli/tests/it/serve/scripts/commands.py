# Every command, with each of its flags.
h.connect_uri(uri)
MIB = 1 << 20
assert h.get_size() == 4 * MIB
assert not h.is_read_only()
for can in ("flush", "fua", "trim", "zero", "fast_zero", "df", "cache", "multi_conn"):
    assert getattr(h, "can_" + can)(), can
assert h.get_protocol() == "newstyle-fixed"
assert h.get_structured_replies_negotiated()

# READ, WRITE, FUA, FLUSH.
was = h.pread(4 * MIB, 0)
assert len(set(was)) > 100, "the image is there"
data = bytes(range(256)) * 16
h.pwrite(data, 8192)
assert h.pread(4096, 8192) == data
assert h.pread(4096, 4096) == was[4096:8192], "the neighbour is as it was"
h.pwrite(data[::-1], 8192 + 512, nbd.CMD_FLAG_FUA)
assert h.pread(512, 8192) == data[:512]
assert h.pread(4096, 8192 + 512) == data[::-1]
h.flush()
h.pwrite(b"\x77" * MIB, 2 * MIB, nbd.CMD_FLAG_FUA)
assert h.pread(MIB, 2 * MIB) == b"\x77" * MIB
# The last sector.
h.pwrite(b"\x78" * 512, 4 * MIB - 512)
assert h.pread(512, 4 * MIB - 512) == b"\x78" * 512

# WRITE_ZEROES: all flags, in all ways.
zeroes = [0, nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_NO_HOLE, nbd.CMD_FLAG_FUA | nbd.CMD_FLAG_NO_HOLE]
for nth, flags in enumerate(zeroes):
    at = 3 * MIB + nth * 65536
    h.pwrite(b"\x11" * 65536, at)
    h.zero(32768, at + 4096, flags)
    assert h.pread(4096, at) == b"\x11" * 4096
    assert h.pread(32768, at + 4096) == bytes(32768), flags
    assert h.pread(4096, at + 36864) == b"\x11" * 4096
# A fast zero is done or refused at once, and then nothing has happened.
at = 3 * MIB + 512 * 1024
h.pwrite(b"\x12" * 65536, at)
try:
    h.zero(65536, at, nbd.CMD_FLAG_FAST_ZERO)
    assert h.pread(65536, at) == bytes(65536)
except nbd.Error as error:
    assert error.errno == "ENOTSUP" or error.errno == "EOPNOTSUPP", error
    assert h.pread(65536, at) == b"\x12" * 65536

# TRIM: what was there, or zeroes.
h.pwrite(b"\x13" * 65536, MIB)
h.trim(65536, MIB)
assert h.pread(65536, MIB) in (bytes(65536), b"\x13" * 65536)
h.trim(4096, MIB, nbd.CMD_FLAG_FUA)
assert h.pread(4096, MIB - 4096) == was[MIB - 4096 : MIB]

# CACHE: nothing changes.
h.cache(MIB, 0)
h.cache(512, 4 * MIB - 512)
assert h.pread(4096, 0) == was[:4096]

# Many at once, neighbours and overlaps.
buffers = [nbd.Buffer.from_bytearray(bytearray([nth]) * 4096) for nth in range(128)]
cookies = [h.aio_pwrite(buffer, nth * 4096) for nth, buffer in enumerate(buffers)]
while h.aio_in_flight() > 0:
    h.poll(-1)
for cookie in cookies:
    assert h.aio_command_completed(cookie)
assert h.pread(128 * 4096, 0) == b"".join(bytes([nth]) * 4096 for nth in range(128))
h.shutdown()
