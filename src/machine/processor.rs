//! Which processors a thread may run on, and how soon it gets one when it wakes.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// How long the calling thread means to run when it wakes: the least that Linux takes. What is woken with so
/// little to do runs at once, before what has run for a while.
const SLICE_NS: u64 = 100_000;

/// The processors that this process may use, by number.
pub fn usable() -> Vec<usize> {
    let Ok(usable) = sched_getaffinity(None) else { return Vec::new() };
    (0..CpuSet::MAX_CPU).filter(|processor| usable.is_set(*processor)).collect()
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
/// It needs no privilege (`sched_setattr(2)`; Linux 6.12 and newer).
///
/// # Errors
/// `Unsupported` where the kernel is older, else what the system says.
pub fn run_at_once() -> io::Result<()> {
    let wanted = Attributes { runtime: SLICE_NS, ..Attributes::get()? };
    wanted.set()?;
    // An older kernel takes it and does nothing with it.
    if Attributes::get()?.runtime == SLICE_NS {
        Ok(())
    } else {
        Err(io::ErrorKind::Unsupported.into())
    }
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
