//! The iocbs that have not ended and whose event is not the kernel's.
//!
//! An iocb has a record if it goes through the layer, has an eventfd, or its time is measured
//! (`forebay run --stats`).

use crate::eventfds::EventFd;
use std::sync::Arc;

/// An iocb with a record, which has not ended.
#[derive(Debug)]
pub(crate) struct Record {
    /// The address of the program's iocb.
    pub(crate) obj: u64,
    /// Its field `data`.
    pub(crate) data: u64,
    /// The eventfd that its end signals.
    pub(crate) resfd: Option<Arc<EventFd>>,
    /// It goes through the layer.
    pub(crate) is_layered: bool,
}

/// A table of records, by number.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: Vec<Option<Record>>,
    free: Vec<u32>,
    nr_layered: u32,
}

impl Records {
    /// Adds a record. Returns its number.
    pub(crate) fn insert(&mut self, record: Record) -> u32 {
        self.nr_layered += u32::from(record.is_layered);
        match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = Some(record);
                number
            }
            None => {
                self.all.push(Some(record));
                u32::try_from(self.all.len() - 1).expect("a context has fewer iocbs")
            }
        }
    }

    /// Removes a record.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Record> {
        let record = self.all.get_mut(number as usize)?.take()?;
        self.free.push(number);
        self.nr_layered -= u32::from(record.is_layered);
        Some(record)
    }

    /// Returns the number of iocbs that go through the layer.
    pub(crate) fn nr_layered(&self) -> u32 {
        self.nr_layered
    }

    /// Returns the number and the record of the program's iocb at an address.
    pub(crate) fn find(&self, obj: u64) -> Option<(u32, &Record)> {
        let numbered = (0..).zip(&self.all);
        let mut records = numbered.filter_map(|(number, it)| Some((number, it.as_ref()?)));
        records.find(|(_, record)| record.obj == obj)
    }

    /// Removes all records.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = Record> {
        self.free.clear();
        self.nr_layered = 0;
        self.all.drain(..).flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_iocbs_of_the_layer_are_counted() {
        let mut records = Records::default();
        let record = |obj, is_layered| Record { obj, data: 0, resfd: None, is_layered };
        assert_eq!([records.insert(record(8, true)), records.insert(record(9, false))], [0, 1]);
        assert_eq!(
            (records.nr_layered(), records.find(9).map(|(nth, it)| (nth, it.is_layered))),
            (1, Some((1, false)))
        );
        assert_eq!(records.remove(0).map(|it| it.obj), Some(8));
        assert!(records.remove(0).is_none() && records.find(8).is_none());
        assert_eq!((records.nr_layered(), records.insert(record(7, false))), (0, 0));
        assert_eq!(records.drain().count(), 2);
        assert_eq!(records.insert(record(1, true)), 0);
    }
}
