# What a client must not ask for is refused with the errors of the specification, and the next
# request works.
MIB = 1 << 20
SIZE = 4 * MIB

def attempt(handle, what, errnos):
    try:
        what()
    except nbd.Error as error:
        assert error.errno in errnos, (error.errno, error.string, errnos)
    else:
        assert False, "it was not refused"
    assert len(handle.pread(512, 0)) == 512, "the connection goes on"
    handle.pwrite(b"\x31" * 512, 1024)
    assert handle.pread(512, 1024) == b"\x31" * 512

for structured in (True, False):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.set_request_structured_replies(structured)
    if structured:
        h.add_meta_context("base:allocation")
    h.connect_uri(uri)
    ends = (SIZE, SIZE - 512, SIZE + 512, 1 << 40, (1 << 63) - 512, (1 << 64) - 1024)
    for at in ends:
        if at == SIZE - 512:
            count = 1024
        else:
            count = 512
        attempt(h, lambda: h.pread(count, at), ("EINVAL",))
        attempt(h, lambda: h.pwrite(b"\x32" * count, at), ("ENOSPC", "EINVAL"))
        attempt(h, lambda: h.zero(count, at), ("ENOSPC", "EINVAL"))
        attempt(h, lambda: h.trim(count, at), ("EINVAL", "ENOSPC"))
        attempt(h, lambda: h.cache(count, at), ("EINVAL", "ENOSPC"))
        if structured:
            attempt(h, lambda: h.block_status(count, at, lambda *a: 0), ("EINVAL",))
    # Unknown flags.
    attempt(h, lambda: h.pwrite(b"\x33" * 512, 0, 1 << 9), ("EINVAL",))
    attempt(h, lambda: h.zero(512, 0, 1 << 9), ("EINVAL",))
    attempt(h, lambda: h.trim(512, 0, 1 << 9), ("EINVAL",))
    attempt(h, lambda: h.pread(512, 0, 1 << 9) if not structured
            else h.pread_structured(512, 0, lambda *a: 0, 1 << 9), ("EINVAL",))
    # Known flags where they have no business.
    attempt(h, lambda: h.pwrite(b"\x33" * 512, 0, nbd.CMD_FLAG_NO_HOLE), ("EINVAL",))
    attempt(h, lambda: h.trim(512, 0, nbd.CMD_FLAG_FAST_ZERO), ("EINVAL",))
    attempt(h, lambda: h.flush(1 << 9), ("EINVAL",))
    assert h.pread(512, SIZE - 512) == h.pread(512, SIZE - 512)
    h.shutdown()

# Extents that were not negotiated.
h = nbd.NBD()
h.set_strict_mode(0)
h.connect_uri(uri)
attempt(h, lambda: h.block_status(512, 0, lambda *a: 0), ("EINVAL", "ENOTSUP", "EOPNOTSUPP"))
h.shutdown()
