//! Recorded loads in files: iologs of fio, and traces of blktrace. `bench` replays them on a disk,
//! and `sim` in virtual time.

pub(crate) mod blktrace;
mod iolog;

pub(crate) use self::iolog::read_iolog;
