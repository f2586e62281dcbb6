# A read-only export reads, and refuses all that would change it with EPERM.
h.connect_uri(uri)
assert h.is_read_only()
h.shutdown()
h = nbd.NBD()
h.set_strict_mode(0)
h.connect_uri(uri)
was = h.pread(1 << 20, 0)
writes = [
    lambda: h.pwrite(b"\x41" * 512, 0),
    lambda: h.pwrite(b"\x41" * 65536, 0, nbd.CMD_FLAG_FUA),
    lambda: h.zero(65536, 0),
    lambda: h.zero(65536, 0, nbd.CMD_FLAG_NO_HOLE),
    lambda: h.trim(65536, 0),
]
for write in writes:
    try:
        write()
    except nbd.Error as error:
        assert error.errno == "EPERM", error.errno
    else:
        assert False, "it was not refused"
    assert h.pread(1 << 20, 0) == was
h.shutdown()
