//! The chore that compares escalations with what each channel was told, and stores what is missing as events.
//!
//! It asks the database alone. So it also tells what was raised while the service was down or a channel was quiet, and a
//! kill leaves nothing half done: messages and what was told are one transaction.

use crate::alerts::channel::{AlertChannelKind, Channel, Due, reserved};
use crate::alerts::store;
use crate::base::clock::Timestamp;
use crate::env::Env;
use crate::store::error::Result;
use crate::store::tenants;
use crate::store::tenants::MailKind;
use crate::store::tx::{ReadTx, WriteTx};
use crate::store::writer::Queue;

/// Tells channels what they are to be told. One of upkeep's chores.
#[derive(Debug)]
pub struct AlertChore {
    env: Env,
}

impl AlertChore {
    /// One that has told nothing yet.
    pub const fn new(env: Env) -> Self {
        Self { env }
    }

    /// Tells each channel what is due. A channel that fails does not keep the others from being told.
    pub fn run(&self) -> Result<()> {
        let channels = self.env.store.read(store::live)?;
        let mut result = Ok(());
        for channel in &channels {
            let told = self.tell(channel, &channels);
            result = result.and(told);
        }
        result
    }

    fn tell(&self, channel: &Channel, all: &[Channel]) -> Result<()> {
        let at = self.env.clock.wall();
        let mails_max = self.env.settings.get().alerts.emails_per_day_max;
        // A read is cheap; the write transaction is only begun when there is something to tell.
        if self.env.store.snapshot(|tx| messages(tx, channel, all, mails_max, at))?.is_empty() {
            return Ok(());
        }
        let clock = self.env.clock.clone();
        let all = all.to_vec();
        let tenant = channel.tenant.clone();
        let name = channel.name.as_str().to_owned();
        self.env.store.writer().write(Queue::Upkeep, move |tx: &WriteTx<'_>| {
            // It may have been changed or deleted since it was read.
            let Some(channel) = store::find(tx, &tenant, &name)? else { return Ok(()) };
            let messages = messages(tx, &channel, &all, mails_max, at)?;
            if messages.is_empty() {
                return Ok(());
            }
            store::tell(tx, &channel, &messages, at, clock.now())
        })
    }
}

fn messages(
    tx: &ReadTx<'_>,
    channel: &Channel,
    all: &[Channel],
    mails_max: u32,
    now: Timestamp,
) -> Result<Vec<Vec<Due>>> {
    let mut timing = match channel.terms.timing() {
        Ok(timing) => timing,
        Err(why) => {
            // Its time zone is no longer known here. Being told at night is better than not being told.
            tracing::warn!(channel = %channel.name, why, "quiet hours, digest and repetition of an alert channel do not hold");
            channel.terms.untimed()
        }
    };
    if channel.kind == AlertChannelKind::Email {
        let sent = tenants::mails(tx, &channel.tenant, now, MailKind::Alert)?;
        // Those that wait for tomorrow count tomorrow.
        let end = tenants::end_of_day(now);
        let pending = store::pending_mails(tx, &channel.tenant, end, mails_max)?;
        let left = mails_max.saturating_sub(sent).saturating_sub(pending);
        timing.left = usize::try_from(left).unwrap_or(usize::MAX);
        timing.reserve = usize::try_from(reserved(mails_max)).unwrap_or(usize::MAX);
    }
    let due = store::due(tx, channel, all, timing.repeat_after, now)?;
    Ok(timing.choose(due, channel.counted, now))
}
