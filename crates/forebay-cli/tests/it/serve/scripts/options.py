# The handshake, option by option.
def handle():
    h = nbd.NBD()
    h.set_opt_mode(True)
    h.set_uri_allow_local_file(True)
    h.connect_uri(uri)
    return h

# LIST, INFO twice, then GO; a name that nobody has is refused, and haggling goes on.
h = handle()
names = []
h.opt_list(lambda name, description: names.append(name) or 0)
assert len(names) == 1, names
h.set_export_name("no such export")
for attempt in (h.opt_info, h.opt_go):
    try:
        attempt()
        assert False, "it was not refused"
    except nbd.Error as error:
        assert error.errno == "ENOENT", error.errno
h.set_export_name("")
h.opt_info()
assert h.get_size() == 4 << 20
h.opt_info()
h.opt_go()
assert h.get_size() == 4 << 20
assert len(h.pread(4096, 0)) == 4096
least, preferred, most = [h.get_block_size(what) for what in (nbd.SIZE_MINIMUM, nbd.SIZE_PREFERRED, nbd.SIZE_MAXIMUM)]
assert least in (1, 512, 4096), least
assert preferred >= 512 and most >= 1 << 20, (preferred, most)
h.shutdown()

# Contexts: all of them, one, none of the sort.
h = handle()
seen = []
h.opt_list_meta_context(lambda name: seen.append(name) or 0)
assert "base:allocation" in seen, seen
h.opt_abort()
h = handle()
seen = []
h.add_meta_context("base:")
h.opt_list_meta_context(lambda name: seen.append(name) or 0)
assert seen == ["base:allocation"], seen
h.clear_meta_contexts()
h.add_meta_context("x:y")
seen = []
h.opt_list_meta_context(lambda name: seen.append(name) or 0)
assert seen == [], seen
h.opt_abort()

# The old way in: EXPORT_NAME, with and without its zeroes; a client that is not of the fixed sort.
for flags in (0, nbd.HANDSHAKE_FLAG_FIXED_NEWSTYLE, nbd.HANDSHAKE_FLAG_NO_ZEROES, nbd.HANDSHAKE_FLAG_MASK):
    h = nbd.NBD()
    h.set_handshake_flags(flags)
    h.connect_uri(uri)
    assert h.get_size() == 4 << 20
    assert len(h.pread(4096, 0)) == 4096
    h.shutdown()
