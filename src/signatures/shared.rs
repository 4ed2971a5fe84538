//! Providers that sign nothing: each request carries the secret itself, as a token, as a password, or in the body.
//!
//! Not here: such a secret in a header that the settings name ([`super::generic`]).

use data_encoding::BASE64;
use zeroize::Zeroizing;

use super::check::{Incoming, MAX_ITEMS, Refused, Verified, bad_body, malformed, needed};
use super::conduct::HandshakeName;
use super::naming::Facts;
use super::naming::Locator::{Body, Header};
use super::signing::{SecretError, same_secret};
use super::standard;
use crate::model::json_fields::Few;
use crate::model::pointer::{list_at, text_at};

/// People choose passwords; one of less than 8 characters can be guessed over the network.
const PASSWORD_BYTES_MIN: usize = 8;

/// Secrets with this prefix sign; all others are tokens.
pub(super) const SIGNING_PREFIX: &str = "whsec_";

const TOKEN: &str = "x-gitlab-token";
const SIGNATURE: &str = "webhook-signature";

/// `Idempotency-Key` stays the same over retries.
pub(super) static GITLAB: Facts = Facts {
    ids: &[Header("webhook-id"), Header("idempotency-key"), Header("x-gitlab-event-uuid")],
    types: &[Body(&["object_kind"]), Body(&["event_name"]), Header("x-gitlab-event")],
    kept: &[
        "x-gitlab-event",
        "x-gitlab-event-uuid",
        "x-gitlab-webhook-uuid",
        "x-gitlab-instance",
        "idempotency-key",
        "webhook-id",
        "webhook-timestamp",
    ],
    ..Facts::new("gitlab", "push")
};

pub(super) static CHARGEBEE: Facts = Facts {
    ids: &[Body(&["id"])],
    types: &[Body(&["event_type"])],
    ..Facts::new("chargebee", "payment_succeeded")
};

/// The path of the list of notifications of Dynamics.
pub(super) const DYNAMICS_ITEMS: [&str; 1] = ["value"];
/// Notifications have no id: the record's id names many of them.
pub(super) static DYNAMICS: Facts = Facts {
    types: &[Body(&["changeType"])],
    items: Some(&DYNAMICS_ITEMS),
    handshakes: &[HandshakeName::ValidationToken],
    ..Facts::new("dynamics", "updated")
};

/// Dynamics 365 Business Central: each notification carries the `clientState` of its subscription.
pub(super) fn dynamics(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let none = ["it has no value", "it has no notifications in value, or too many"];
    each_item(incoming, &DYNAMICS_ITEMS, none, |item| {
        let state = text_at(item, &["clientState"])
            .ok_or_else(|| bad_body("a notification has no clientState"))?;
        matching(secrets, |secret| same_secret(state.as_bytes(), secret)).map(|it| it.secret)
    })
}

/// GitLab: checks the signature if there is one, else the token.
pub(super) fn gitlab(secrets: &[&[u8]], incoming: &Incoming<'_>) -> Result<Verified, Refused> {
    let signs = |secret: &&[u8]| secret.starts_with(SIGNING_PREFIX.as_bytes());
    if incoming.headers.get(SIGNATURE).is_some() {
        return standard::verify(secrets, incoming, standard::Key::Decoded);
    }
    let token = needed(incoming.headers, TOKEN)?;
    // A signing token is never sent, so it must not be accepted as a token either.
    matching(secrets, |secret| !signs(&secret) && same_secret(token.as_bytes(), secret))
}

/// Whether basic authentication can carry that user name.
pub(super) fn is_user(user: &str) -> bool {
    (1..=255).contains(&user.chars().count())
        && !user.contains(':')
        && !user.chars().any(char::is_control)
}

pub(super) fn check_password(text: &str) -> Result<(), SecretError> {
    if text.len() < PASSWORD_BYTES_MIN {
        return Err(SecretError::Short { bytes: text.len(), min: PASSWORD_BYTES_MIN });
    }
    Ok(())
}

/// Basic authentication with that user; the secret is the password.
pub(super) fn basic(
    user: &str,
    secrets: &[&[u8]],
    incoming: &Incoming<'_>,
) -> Result<Verified, Refused> {
    const HEADER: &str = "authorization";
    let value = needed(incoming.headers, HEADER)?;
    let (scheme, encoded) =
        value.split_once(' ').ok_or_else(|| malformed(HEADER, "it has one word only"))?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return Err(malformed(HEADER, "it is not basic authentication"));
    }
    let given = BASE64.decode(encoded.trim().as_bytes()).map(Zeroizing::new);
    let given = given.map_err(|_where| malformed(HEADER, "it is not base64"))?;
    matching(secrets, |secret| {
        let wanted = Zeroizing::new([user.as_bytes(), b":", secret].concat());
        same_secret(&given, &wanted)
    })
}

/// Finds the secret that was sent; nothing is signed, so there is no time.
pub(super) fn matching(
    secrets: &[&[u8]],
    equal: impl Fn(&[u8]) -> bool,
) -> Result<Verified, Refused> {
    if secrets.iter().all(|secret| secret.is_empty()) {
        return Err(Refused::NoSecret);
    }
    let matching = |secret: &&[u8]| !secret.is_empty() && equal(secret);
    let secret = secrets.iter().position(matching).ok_or(Refused::Mismatch)?;
    Ok(Verified { secret, signed_at: None })
}

/// Verifies each item of a list in the body; the secret is that of the first. `none` says that there is no list, or
/// none of a usable length.
pub(super) fn each_item(
    incoming: &Incoming<'_>,
    path: &[&str],
    none: [&'static str; 2],
    verify: impl Fn(&[u8]) -> Result<usize, Refused>,
) -> Result<Verified, Refused> {
    let found = list_at::<_, MAX_ITEMS>(incoming.body, path);
    let Few { kept: items, count } = found.ok_or_else(|| bad_body(none[0]))?;
    if !(1..=MAX_ITEMS).contains(&count) {
        return Err(bad_body(none[1]));
    }
    let mut first = None;
    for item in items {
        let secret = verify(item.get().as_bytes())?;
        first.get_or_insert(secret);
    }
    Ok(Verified { secret: first.unwrap_or_default(), signed_at: None })
}
