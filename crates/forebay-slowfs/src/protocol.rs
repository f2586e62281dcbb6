//! The messages of `/dev/fuse` that a file system with one file needs.
//!
//! The layouts are those of `include/uapi/linux/fuse.h`: fields in the byte order of the machine.

/// A request of the kernel, as the bytes of its `struct fuse_in_header` and its arguments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'a>(&'a [u8]);

/// The length of `struct fuse_in_header`, which precedes the arguments.
const HEADER: usize = 40;

/// The length of `struct fuse_write_in`, which precedes the data of a write.
const WRITE_IN: usize = 40;

/// `enum fuse_opcode`
pub(crate) mod opcode {
    pub(crate) const LOOKUP: u32 = 1;
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const BATCH_FORGET: u32 = 42;
}

/// The bit of `fuse_setattr_in.valid` for a new size.
const FATTR_SIZE: u32 = 1 << 3;

/// Flags of the reply to `INIT`: several reads at a time, writes and reads of more than a page,
/// asynchronous direct I/O (without it, `io_submit` would wait for each I/O), and `max_pages`.
const INIT_FLAGS: u32 = 1 << 0 | 1 << 5 | 1 << 15 | 1 << 22;

/// Flags of an open file: no page cache, and several direct writes at a time.
const OPEN_FLAGS: u32 = 1 << 0 | 1 << 6;

/// The largest write, and the largest read.
const MAX_IO: u32 = 1 << 20;

/// The buffer that the kernel requires for requests.
pub(crate) const MAX_REQUEST: usize = MAX_IO as usize + 4096;

/// The asynchronous requests that the kernel sends before it waits for replies.
const MAX_BACKGROUND: u16 = 1024;

/// The time for which the kernel may keep names and attributes: they never change.
const VALID_S: u64 = 86_400;

impl<'a> Request<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Request<'a> {
        Request(bytes)
    }

    fn u32_at(self, offset: usize) -> u32 {
        let bytes = self.0.get(offset..).and_then(|rest| rest.first_chunk());
        u32::from_ne_bytes(*bytes.expect("the kernel sends whole requests"))
    }

    fn u64_at(self, offset: usize) -> u64 {
        let bytes = self.0.get(offset..).and_then(|rest| rest.first_chunk());
        u64::from_ne_bytes(*bytes.expect("the kernel sends whole requests"))
    }

    pub(crate) fn opcode(self) -> u32 {
        self.u32_at(4)
    }

    pub(crate) fn unique(self) -> u64 {
        self.u64_at(8)
    }

    pub(crate) fn node(self) -> u64 {
        self.u64_at(16)
    }

    /// Returns the name of a `LOOKUP`.
    pub(crate) fn name(self) -> &'a [u8] {
        self.0[HEADER..].split(|byte| *byte == 0).next().unwrap_or_default()
    }

    /// Returns the size that a `SETATTR` requests.
    pub(crate) fn new_size(self) -> Option<u64> {
        (self.u32_at(HEADER) & FATTR_SIZE != 0).then(|| self.u64_at(HEADER + 16))
    }

    /// Returns the offset and the length of a `READ` or a `WRITE`.
    pub(crate) fn range(self) -> (u64, usize) {
        (self.u64_at(HEADER + 8), self.u32_at(HEADER + 16) as usize)
    }

    /// Returns the data of a `WRITE`.
    pub(crate) fn data(self) -> &'a [u8] {
        let (_, len) = self.range();
        &self.0[HEADER + WRITE_IN..][..len]
    }

    /// Returns the kernel's version of the protocol.
    fn version(self) -> (u32, u32) {
        (self.u32_at(HEADER), self.u32_at(HEADER + 4))
    }
}

/// The bytes of a reply: `struct fuse_out_header` and the result.
#[derive(Debug)]
pub(crate) struct Reply(Vec<u8>);

impl Reply {
    /// Returns an empty reply. Later ones reuse its memory.
    pub(crate) fn new() -> Reply {
        Reply(Vec::new())
    }

    /// Starts the reply to a request, without a result.
    pub(crate) fn start(&mut self, unique: u64) {
        self.0.clear();
        self.u64(0);
        self.u64(unique);
    }

    /// Makes the reply an error.
    pub(crate) fn fail(&mut self, errno: i32) {
        self.0.truncate(16);
        self.0[4..8].copy_from_slice(&(-errno).to_ne_bytes());
    }

    /// Returns the bytes, with their length filled in.
    pub(crate) fn finish(&mut self) -> &[u8] {
        let len = u32::try_from(self.0.len()).expect("a reply is smaller than 4 GiB");
        self.0[..4].copy_from_slice(&len.to_ne_bytes());
        &self.0
    }

    fn u16(&mut self, value: u16) {
        self.0.extend(value.to_ne_bytes());
    }

    fn u32(&mut self, value: u32) {
        self.0.extend(value.to_ne_bytes());
    }

    fn u64(&mut self, value: u64) {
        self.0.extend(value.to_ne_bytes());
    }

    /// Appends `struct fuse_init_out`. Returns `false` if the kernel's protocol is another one.
    #[must_use]
    pub(crate) fn init(&mut self, request: Request<'_>) -> bool {
        let (major, minor) = request.version();
        self.u32(7);
        // From 7.31 on, the replies have the layouts of this file.
        self.u32(minor.min(31));
        self.u32(0);
        self.u32(INIT_FLAGS);
        self.u16(MAX_BACKGROUND);
        self.u16(MAX_BACKGROUND);
        self.u32(MAX_IO);
        self.u32(1);
        self.u16(u16::try_from(MAX_IO / 4096).expect("a small number"));
        self.0.resize(16 + 64, 0);
        major == 7 && minor >= 31
    }

    /// Appends `struct fuse_entry_out`.
    pub(crate) fn entry(&mut self, node: u64, attributes: impl FnOnce(&mut Reply)) {
        self.u64(node);
        self.u64(0);
        self.u64(VALID_S);
        self.u64(VALID_S);
        self.u64(0);
        attributes(self);
    }

    /// Appends `struct fuse_attr_out`.
    pub(crate) fn attr_out(&mut self, attributes: impl FnOnce(&mut Reply)) {
        self.u64(VALID_S);
        self.u64(0);
        attributes(self);
    }

    /// Appends `struct fuse_attr`.
    pub(crate) fn attr(&mut self, node: u64, mode: u32, size: u64) {
        self.u64(node);
        self.u64(size);
        self.u64(size.div_ceil(512));
        // The times of the last access and changes.
        self.0.resize(self.0.len() + 3 * 8 + 3 * 4, 0);
        self.u32(mode);
        self.u32(1);
        self.u32(rustix::process::geteuid().as_raw());
        self.u32(rustix::process::getegid().as_raw());
        self.u32(0);
        self.u32(4096);
        self.u32(0);
    }

    /// Appends `struct fuse_open_out`.
    pub(crate) fn open(&mut self) {
        self.u64(0);
        self.u32(OPEN_FLAGS);
        self.u32(0);
    }

    /// Appends `struct fuse_write_out`.
    pub(crate) fn written(&mut self, len: usize) {
        self.u32(u32::try_from(len).expect("a write has at most MAX_IO bytes"));
        self.u32(0);
    }

    /// Appends the data of a read of at most `len` bytes, which `read` fills and counts.
    pub(crate) fn data<E>(
        &mut self,
        len: usize,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<(), E> {
        let start = self.0.len();
        self.0.resize(start + len, 0);
        let len = read(&mut self.0[start..])?;
        self.0.truncate(start + len);
        Ok(())
    }
}
