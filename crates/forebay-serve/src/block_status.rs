//! BLOCK_STATUS: which parts of a range are data, zeroes or holes.
//!
//! The query may take long: a file may have many extents, another process may hold its lock while
//! it punches a hole, and a disk may be on an NBD server. So each export has a thread for queries,
//! and no worker waits for it. The answer is passed to a function of the worker.

use crate::export::Export;
use forebay::{Extent, ExtentKind};
use forebay_front::nbd::{QUESTIONS_MAX, StatusAnswer, StatusQuery};
use forebay_nbd::server::Command;
use forebay_nbd::wire::numbers::{STATE_HOLE, STATE_ZERO};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// Most extents of one reply.
const EXTENTS_MAX: usize = 1024;

/// Most clients whose queries can be queued; queries of more are refused.
const CLIENTS_MAX: usize = 1024;

/// A query of a client.
pub(crate) struct Question {
    query: StatusQuery,
    /// Takes the answer.
    answer: Box<dyn FnOnce(StatusAnswer) + Send>,
}

/// Queues of the query threads, by index of the export. A thread ends when its queue is dropped, or
/// with the process: a thread that waits for another server is not joined.
#[derive(Debug, Default)]
pub(crate) struct BlockStatusThreads(Mutex<Vec<Option<SyncSender<Question>>>>);

impl BlockStatusThreads {
    /// Starts the thread of an export, for at most `nr_clients` at once.
    ///
    /// # Errors
    /// Returns an error if the thread cannot be started.
    pub(crate) fn start(
        &self,
        index: usize,
        export: &Arc<Export>,
        nr_clients: usize,
    ) -> io::Result<()> {
        let nr = nr_clients.min(CLIENTS_MAX) * QUESTIONS_MAX as usize;
        let (sender, questions) = sync_channel(nr);
        let export = Arc::downgrade(export);
        let builder = std::thread::Builder::new().name(format!("status-{index}"));
        builder.spawn(move || answer_all(&export, &questions))?;
        let mut queues = self.queues();
        if queues.len() <= index {
            queues.resize_with(index + 1, || None);
        }
        queues[index] = Some(sender);
        Ok(())
    }

    /// Ends the thread of an export.
    pub(crate) fn end(&self, index: usize) {
        self.queues()[index] = None;
    }

    /// Queues a query; another thread calls `answer`. Returns whether there was room. Queries of
    /// closed connections may fill the queue.
    pub(crate) fn query(
        &self,
        query: StatusQuery,
        answer: impl FnOnce(StatusAnswer) + Send + 'static,
    ) -> bool {
        let queue = self.queues().get(query.export).cloned().flatten();
        let question = Question { query, answer: Box::new(answer) };
        queue.is_some_and(|queue| queue.try_send(question).is_ok())
    }

    fn queues(&self) -> MutexGuard<'_, Vec<Option<SyncSender<Question>>>> {
        // Each change under this lock is complete even if a panic follows.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Answers all queries about an export. Does not keep the disk open.
fn answer_all(export: &Weak<Export>, questions: &Receiver<Question>) {
    for Question { query, answer } in questions {
        let StatusQuery { client, rq, .. } = query;
        let Some(export) = export.upgrade() else { return };
        let is_one = matches!(rq.command, Ok(Command::BlockStatus { one: true }));
        let max = if is_one { 1 } else { EXTENTS_MAX };
        let mut extents: Vec<Extent> = Vec::new();
        let ask =
            AssertUnwindSafe(|| export.disk.block_status(rq.offset, rq.len, max, &mut extents));
        let extents = match catch_unwind(ask) {
            Ok(found) => found.map(|()| states(&extents)).map_err(|error| error.to_string()),
            Err(_) => Err("internal error in the server".to_owned()),
        };
        // The answer may end the last use of the export, which is removed then.
        drop(export);
        answer(StatusAnswer { client, rq, extents });
    }
}

/// Returns the extents of a range as NBD describes them.
fn states(extents: &[Extent]) -> Vec<(u64, u32)> {
    extents
        .iter()
        .map(|extent| match extent.kind {
            ExtentKind::Data => (extent.len, 0),
            ExtentKind::Zero => (extent.len, STATE_ZERO),
            ExtentKind::Hole => (extent.len, STATE_HOLE | STATE_ZERO),
        })
        .collect()
}
