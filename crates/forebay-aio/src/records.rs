//! The iocbs that were submitted and have not ended.

use crate::abi::Iocb;

/// An iocb that has not ended.
#[derive(Debug)]
pub(crate) struct Record {
    /// The address of the program's iocb.
    pub(crate) obj: u64,
    /// Its field `data`.
    pub(crate) data: u64,
    /// The eventfd that its end signals.
    pub(crate) resfd: Option<u32>,
    /// The copy that the kernel got, at a fixed address, for a cancel. `None` for one in the layer.
    pub(crate) at_kernel: Option<Box<Iocb>>,
}

/// A table of records, by number.
#[derive(Debug, Default)]
pub(crate) struct Records {
    all: Vec<Option<Record>>,
    free: Vec<u32>,
}

impl Records {
    /// Adds a record. Returns its number.
    pub(crate) fn insert(&mut self, record: Record) -> u32 {
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

    /// Keeps the copy that the kernel got.
    pub(crate) fn keep(&mut self, number: u32, iocb: Box<Iocb>) {
        if let Some(record) = self.all.get_mut(number as usize).and_then(Option::as_mut) {
            record.at_kernel = Some(iocb);
        }
    }

    /// Removes a record.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Record> {
        let record = self.all.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(record)
    }

    /// Returns the record of the iocb at this address.
    pub(crate) fn of(&self, obj: u64) -> Option<&Record> {
        self.all.iter().flatten().find(|record| record.obj == obj)
    }
}
