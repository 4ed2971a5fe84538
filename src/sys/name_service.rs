//! Where the static program looks up names of hosts, users and groups.

/// Makes glibc look up hosts in `/etc/hosts` and by DNS, users and groups in their files, whatever `/etc/nsswitch.conf`
/// says. Only the static program does so; the others do as the machine says.
///
/// The services that `/etc/nsswitch.conf` may name beside those, such as `mdns4_minimal` and `resolve`, are libraries of the
/// machine, which need the machine's own glibc. Loaded into a program that brings its own, they end it: measured on Debian 13,
/// where the first lookup of a host died of SIGFPE. Files and DNS have been part of glibc itself since 2.34.
///
/// To be called before other threads are started.
#[expect(clippy::missing_const_for_fn, reason = "it calls glibc in the static program")]
pub fn use_files_and_dns() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    glibc::use_files_and_dns();
}

#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
mod glibc {
    use std::ffi::{CStr, c_char, c_int};

    /// What is looked up, and where.
    const LOOKUPS: [(&CStr, &CStr); 3] =
        [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")];

    #[expect(unsafe_code, reason = "no binding has this call of glibc, which <nss.h> declares")]
    unsafe extern "C" {
        fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
    }

    #[expect(unsafe_code, reason = "no binding has this call of glibc")]
    pub(super) fn use_files_and_dns() {
        for (database, services) in LOOKUPS {
            // SAFETY: both are texts with a zero at their end that live as long as the program, and no other thread runs
            // yet. It fails for an unknown database alone.
            unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        }
    }
}
