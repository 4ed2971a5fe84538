//! Oncebox under what goes wrong outside it: kill -9, failures at every step, a full disk, a clock
//! that jumps.

mod alerts;
mod archiving;
mod clock;
mod confirmations;
mod crash_loop;
mod credentials;
mod disk;
mod effects;
mod external_calls;
mod families;
mod file_recipes;
mod folders;
mod gaps;
mod hostile;
mod jobs;
mod keeping;
mod keys;
mod kill;
mod leases;
mod log_room;
mod memory;
mod offline;
mod order;
mod plain_sql;
mod planned;
mod rotation;
mod sealing;
mod sourcing;
mod start_room;
mod takeover;
mod trusted;
mod upgrade;
mod walk;
mod walk_console;

use crate::rig::process;
