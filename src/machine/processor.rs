//! Which processors a thread may run on, and how soon it gets one when it wakes.

use std::{fs, io};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Where the kernel lists the processors that are in use.
const ONLINE: &str = "/sys/devices/system/cpu/online";
/// How long the calling thread means to run when it wakes: the least that Linux takes. What is woken with so
/// little to do runs at once, before what has run for a while.
const SLICE_NS: u64 = 100_000;

/// The processors that this process may use, by number.
pub fn usable() -> Vec<usize> {
    let Ok(usable) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|processor| usable.is_set(*processor)).collect()
}

/// Whether this process may use every processor that is in use on this machine. Another process may be bound to
/// one that this one may not use, and nothing tells.
pub fn are_all_usable() -> bool {
    let online = fs::read_to_string(ONLINE).ok().and_then(|list| listed(&list));
    online.is_some_and(|online| online.iter().all(|processor| usable().contains(processor)))
}

/// `0-3,8`: the kernel's way to list processors.
fn listed(list: &str) -> Option<Vec<usize>> {
    let mut all = Vec::new();
    for span in list.trim().split(',') {
        let (from, to) = span.split_once('-').unwrap_or((span, span));
        all.extend(from.parse::<usize>().ok()?..=to.parse().ok()?);
    }
    Some(all)
}

/// Lets the calling thread run on one processor only.
///
/// # Errors
/// What the system says: the processor may be gone, or a filter of system calls may forbid it.
pub fn stay_on(processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    Ok(sched_setaffinity(None, &only)?)
}

/// Lets the calling thread run at once whenever it wakes, for 0.1 ms, before threads that mean to run for longer.
/// It needs no privilege (`sched_setattr(2)`; Linux 6.12 and newer). A real-time thread does so anyway.
///
/// # Errors
/// `Unsupported` where the kernel is older or this process gives way to all others (`SCHED_BATCH`, `SCHED_IDLE`),
/// else what the system says.
pub fn run_at_once() -> io::Result<()> {
    let now = Attributes::get()?;
    match i32::try_from(now.policy) {
        Ok(libc::SCHED_FIFO | libc::SCHED_RR) => return Ok(()),
        Ok(libc::SCHED_OTHER) => Attributes { runtime: SLICE_NS, ..now }.set()?,
        _ => return Err(io::ErrorKind::Unsupported.into()),
    }
    // An older kernel takes it and does nothing with it.
    let is_taken = Attributes::get()?.runtime == SLICE_NS;
    if is_taken { Ok(()) } else { Err(io::ErrorKind::Unsupported.into()) }
}

/// `struct sched_attr` in its first version, which every kernel knows.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Attributes {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Its size: the kernel is told with every call.
const SIZE: u32 = 48;

impl Attributes {
    #[expect(unsafe_code, reason = "no binding knows this call")]
    fn get() -> io::Result<Self> {
        let mut attributes = Self::default();
        // SAFETY: the kernel writes SIZE bytes at most, and that is how large the structure is.
        let answer = unsafe {
            libc::syscall(libc::SYS_sched_getattr, 0, std::ptr::from_mut(&mut attributes), SIZE, 0)
        };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(attributes) }
    }

    #[expect(unsafe_code, reason = "no binding knows this call")]
    fn set(self) -> io::Result<()> {
        let attributes = Self { size: SIZE, ..self };
        // SAFETY: the kernel reads as many bytes as the structure says it has.
        let answer = unsafe {
            libc::syscall(libc::SYS_sched_setattr, 0, std::ptr::from_ref(&attributes), 0)
        };
        if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_told_the_right_size() {
        assert_eq!(size_of::<Attributes>(), usize::try_from(SIZE).unwrap());
    }

    #[test]
    fn processors_are_listed_singly_and_in_spans() {
        assert_eq!(listed("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(listed("0"), Some(vec![0]));
        assert_eq!(listed(""), None);
        assert_eq!(listed("0-x"), None);
    }

    #[test]
    fn who_is_bound_to_one_processor_may_not_use_all() {
        let online = fs::read_to_string(ONLINE).unwrap();
        let is_alone = listed(&online).unwrap().len() == 1;
        std::thread::scope(|threads| {
            threads.spawn(|| {
                stay_on(usable()[0]).unwrap();
                assert_eq!(are_all_usable(), is_alone);
            });
        });
    }

    #[test]
    fn who_gives_way_to_all_others_does_not_run_at_once() {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let batch = libc::SCHED_BATCH.unsigned_abs();
                Attributes { policy: batch, ..Attributes::get().unwrap() }.set().unwrap();
                assert_eq!(run_at_once().unwrap_err().kind(), io::ErrorKind::Unsupported);
            });
        });
    }

    #[test]
    fn a_thread_stays_where_it_is_told_to() {
        let processors = usable();
        assert!(!processors.is_empty());
        let last = *processors.last().unwrap();
        let now = std::thread::scope(|threads| {
            let told = threads.spawn(|| stay_on(last).map(|()| usable()));
            told.join().unwrap().unwrap()
        });
        assert_eq!(now, [last]);
        assert!(stay_on(CpuSet::MAX_CPU - 1).is_err(), "no machine has so many");
    }

    #[test]
    fn a_thread_that_runs_at_once_is_as_nice_as_it_was() {
        std::thread::scope(|threads| {
            threads.spawn(|| {
                let before = Attributes::get().unwrap();
                match run_at_once() {
                    Ok(()) => assert_eq!(Attributes::get().unwrap().nice, before.nice),
                    Err(error) => assert_eq!(error.kind(), io::ErrorKind::Unsupported),
                }
            });
        });
    }
}
