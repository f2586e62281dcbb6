# Payloads up to 64 MiB, as nbdkit takes them; kernels send up to 49.9 MB.
MIB = 1 << 20
h.set_strict_mode(0)
h.connect_uri(uri)
assert h.get_size() == 80 * MIB
assert h.get_block_size(nbd.SIZE_MAXIMUM) == 64 * MIB

for nth, length in enumerate((49_900_032, 64 * MIB)):
    data = bytes((n * 7 + nth) % 251 for n in range(4096)) * (length // 4096)
    data += data[: length - len(data)]
    h.pwrite(data, 512)
    assert h.pread(length, 512) == data, length
    assert h.pread(length, 512, nbd.CMD_FLAG_DF) == data, length
h.flush()
h.shutdown()
