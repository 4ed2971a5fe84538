//! Refuses new work while free disk space is below the reserve, before the body of a request is read.
//!
//! What a person does to existing work (retry, cancel, pause, change, delete) is not new work.

use crate::api::context::Api;
use crate::api::problem::Problem;
use crate::api::route::Route;
use crate::http::message::Method;

/// POST paths that make something new. Every other POST acts on something that exists.
const NEW_WORK: [&str; 11] = [
    "/in/{provider}",
    "/in/{tenant}/{provider}",
    "/v1/events",
    "/v1/providers",
    "/v1/subscriptions",
    "/v1/sources",
    "/v1/processed-events",
    "/v1/tokens",
    "/v1/users",
    "/v1/tenants",
    "/v1/alert-channels",
];

/// Refuses new work while the disk is low.
/// Fails with 507 and `Retry-After`.
pub(super) fn check(api: &Api, route: &Route) -> Result<(), Problem> {
    let disk = &api.flow.disk;
    if disk.is_low() && route.method == Method::Post && NEW_WORK.contains(&route.path) {
        disk.refused.add();
        return Err(Problem::no_room());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::routes;

    /// Whether a path ends with an action on one thing or on many.
    fn acts(path: &str) -> bool {
        let verb = [
            "/confirm/{token}",
            "/backups",
            "/discard",
            "/end",
            "/erase",
            "/find",
            "/release",
            "/replay",
            "/rotate",
            "/skip",
        ]
        .iter()
        .any(|verb| path.ends_with(verb));
        verb || (path.contains("}/") && !path.starts_with("/in/"))
    }

    #[test]
    fn every_post_is_either_new_work_or_acts_on_something() {
        for route in routes().filter(|route| route.method == Method::Post) {
            assert_ne!(NEW_WORK.contains(&route.path), acts(route.path), "{route:?}");
        }
        for path in NEW_WORK {
            assert!(routes().any(|route| route.path == path), "{path}");
        }
    }
}
