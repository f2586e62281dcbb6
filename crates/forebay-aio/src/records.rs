//! The iocbs that were submitted and have not ended.

/// An iocb that has not ended.
#[derive(Debug)]
pub(crate) struct Record {
    /// The address of the program's iocb.
    pub(crate) obj: u64,
    /// Its field `data`.
    pub(crate) data: u64,
    /// The eventfd that its end signals.
    pub(crate) resfd: Option<u32>,
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

    /// Removes a record.
    pub(crate) fn remove(&mut self, number: u32) -> Option<Record> {
        let record = self.all.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(record)
    }
}
