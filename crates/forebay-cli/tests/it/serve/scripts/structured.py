# What replies in pieces promise: no byte twice, none left out, DF in one piece; extents without
# gaps, and never more than was asked for where one is asked for.
MIB = 1 << 20
h.add_meta_context("base:allocation")
h.add_meta_context("other:thing")
h.connect_uri(uri)
assert h.get_structured_replies_negotiated()
assert h.can_meta_context("base:allocation")
assert not h.can_meta_context("other:thing")
h.pwrite(b"\x21" * MIB, 0)
h.zero(MIB, MIB)
h.pwrite(b"\x22" * MIB, 2 * MIB)

def read(count, offset, flags=0):
    got = []
    def chunk(data, at, status, error):
        assert error.value == 0
        got.append((at, bytes(data), status))
    whole = h.pread_structured(count, offset, chunk, flags)
    got.sort()
    at = offset
    for start, data, status in got:
        assert start == at, (start, at)
        if status == nbd.READ_HOLE:
            assert data == bytes(len(data))
        at += len(data)
    assert at == offset + count
    assert b"".join(data for _, data, _ in got) == whole
    return got, whole

for offset, count in ((0, 512), (0, 4 * MIB), (MIB - 512, 1024), (MIB - 4096, MIB + 8192), (4 * MIB - 512, 512)):
    read(count, offset)
for offset, count in ((0, 512), (MIB - 4096, 8192), (MIB, MIB)):
    got, _ = read(count, offset, nbd.CMD_FLAG_DF)
    assert len(got) == 1, [(at, len(data)) for at, data, _ in got]
assert read(3 * MIB, 0)[1] == b"\x21" * MIB + bytes(MIB) + b"\x22" * MIB

def extents(count, offset, flags=0):
    got = []
    def extent(context, at, entries, error):
        assert (context, at, error.value) == ("base:allocation", offset, 0)
        got.extend((entries[nth], entries[nth + 1]) for nth in range(0, len(entries), 2))
    h.block_status(count, offset, extent, flags)
    assert got and all(length > 0 for length, _ in got), got
    return got

at, seen = 0, []
while at < 4 * MIB:
    for length, state in extents(4 * MIB - at, at):
        seen.append((at, length, state))
        at += length
assert at == 4 * MIB, seen
for start, length, state in seen:
    assert state in (0, 1, 2, 3), state
    data = h.pread(min(length, MIB), start)
    if state & 2:
        assert data == bytes(len(data)), (start, length, state)
def state_at(offset):
    return next(state for start, length, state in seen if start <= offset < start + length)
assert state_at(0) & 1 == 0, "data is no hole"
one = extents(4 * MIB, 0, nbd.CMD_FLAG_REQ_ONE)
assert len(one) == 1 and one[0][0] <= 4 * MIB, one
one = extents(4096, MIB + 4096, nbd.CMD_FLAG_REQ_ONE)
assert len(one) == 1 and one[0][0] <= 4096, one
h.shutdown()

# Without structured replies there are no extents, and reads come whole.
plain = nbd.NBD()
plain.set_request_structured_replies(False)
plain.connect_uri(uri)
assert not plain.get_structured_replies_negotiated()
assert plain.pread(3 * MIB, 0) == b"\x21" * MIB + bytes(MIB) + b"\x22" * MIB
assert not plain.can_df()
plain.shutdown()
