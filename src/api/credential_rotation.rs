//! Rotating credentials: on demand, and how often by itself. `POST /integrations/credentials/rotate` is the same under
//! the path that older programs know.

use std::ops::RangeInclusive;
use std::time::Duration;

use serde_json::json;
use zeroize::Zeroizing;

use crate::api::audited::carry_out;
use crate::api::claimed::{self, Wanted};
use crate::api::credentials::{CredentialAnswer, ID, SecretText, shown, unusable};
use crate::api::idempotency;
use crate::api::kind::Kind as ProblemKind;
use crate::api::prelude::*;
use crate::model::credential::{CredentialKind, CredentialState, Purpose, RotationPlan};
use crate::model::effect::EffectKind;
use crate::model::subscription::Target;
use crate::pipeline::probe::{FULL, Turn};
use crate::pipeline::upkeep::credential_rotation::{
    OVERLAP, ReplacementCredential, check_plan, material, refused,
};
use crate::store::claimed_effects::ClaimedEffect;
use crate::store::credentials::{self, Credential, Owner, context};
use crate::store::{credential_rotations as rotations, providers, subscriptions};

/// How long old and new may be valid side by side.
const OVERLAPS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(24 * 30);
/// How often a credential may be rotated by itself.
const EVERY: RangeInclusive<Duration> = Duration::from_hours(1)..=Duration::from_hours(24 * 3660);

/// Why a rotation is refused while another one is under way.
const BUSY: &str = "It is being rotated at this moment.";

/// Rotating credentials.
pub(super) const RESOURCE: Resource = Resource {
    tag: "Rotation",
    about: "A credential is replaced without a moment in which none works: the new one is `next` until a request that \
            carries it alone is accepted.",
    routes: &[
        post("/v1/credentials/{id}/rotate", Admin, ActLater("credential.rotate", rotate))
            .doc("rotateCredential", "Rotate a credential", &[ID])
            .about(
                "A signing secret is made if none is given, and shown this once; requests carry both signatures from \
                 then on. An `oncebox.ping` signed with the new one alone is sent until it is accepted or the overlap \
                 is over. Another kind needs a `secret` or a `command`; the answer comes after its verification. A \
                 provider's old secrets stay valid until the overlap is over. Where the new one is not accepted, it is \
                 revoked, the old one stays, and an escalation is raised.",
            )
            .returns(&[Returns::json::<RotationAnswer<'_>>(201, "The new version.")])
            .optional_body::<Rotation>(r#"{"overlap":"24h","reason":"a laptop was lost"}"#)
            .problems(&[ProblemKind::Conflict]),
        post(
            "/integrations/credentials/rotate",
            Admin,
            ActLater("credential.rotate_named", rotate_named),
        )
        .doc("rotateNamedCredential", "Rotate a credential that the body names", &[])
        .about("As `rotateCredential`.")
        .returns(&[Returns::json::<RotationAnswer<'_>>(201, "The new version.")])
        .body::<NamedRotation>(
            r#"{"credential_id":"0198c5a0-0000-7000-8000-000000000000","reason":"every quarter"}"#,
        )
        .problems(&[ProblemKind::NotFound, ProblemKind::Conflict]),
        post("/v1/credentials/{id}/schedule", Admin, Act("credential.schedule", schedule))
            .doc("scheduleRotation", "Set how a credential is rotated by itself", &[ID])
            .about(
                "`command` names one of `[credentials.commands]` in the settings: its output is the new secret. It \
                 also runs, once, when the target refuses the credential. Without it, a subscription's signing secret \
                 is made here, and `credential.new_secret` is raised: its receiver has half of `every`, seven days at \
                 most, to learn it. What is absent is removed.",
            )
            .returns(&[Returns::json::<CredentialAnswer<'_>>(200, "The credential as it is now.")])
            .body::<Schedule>("{}")
            .problems(&[ProblemKind::Conflict]),
        post("/v1/credentials/{id}/reveal", Admin, Act("credential.reveal", reveal))
            .doc("revealCredential", "Show a signing secret that is next", &[ID])
            .about(
                "So that its receiver can learn it, as long as it is `next`. One that was made by the clock is verified from \
                 then on. Each time is audited, and no `Idempotency-Key` is taken. Of a key pair the receiver needs the \
                 public key, which `settings` have.",
            )
            .returns(&[Returns::json::<RotationAnswer<'_>>(200, "The credential and its secret.")])
            .problems(&[ProblemKind::Conflict]),
    ],
};

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RotationRequest")]
struct Rotation {
    /// The new secret, of the same kind.
    secret: Option<Is<SecretText>>,
    /// A command of the settings whose output is the new secret; if absent, the credential's own.
    command: Option<Is<Text<1, 255>>>,
    /// How long old and new are valid side by side, like `24h`.
    overlap: Option<Is<Text<1, 40>>>,
    /// Why; kept in the audit.
    reason: Option<Is<Text<0, 1000>>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NamedRotation {
    credential_id: Is<Uuid>,
    // Flattened, `Rotation` would let unknown fields pass.
    /// The new secret, of the same kind.
    secret: Option<Is<SecretText>>,
    /// A command of the settings whose output is the new secret; if absent, the credential's own.
    command: Option<Is<Text<1, 255>>>,
    /// How long old and new are valid side by side, like `24h`.
    overlap: Option<Is<Text<1, 40>>>,
    /// Why; kept in the audit.
    reason: Option<Is<Text<0, 1000>>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(rename = "RotationSchedule")]
struct Schedule {
    /// How often, like `90d`.
    every: Option<Is<Text<1, 40>>>,
    /// A command of the settings.
    command: Option<Is<Text<1, 255>>>,
}

/// A new version of a credential.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RotatedCredential")]
struct RotationAnswer<'a, T = CredentialAnswer<'a>> {
    #[serde(flatten)]
    made: T,
    /// The signing secret, where it was made here. It is shown this once.
    secret: Option<&'a str>,
}

/// `POST /v1/credentials/{id}/rotate`
fn rotate(api: &Api, call: Call, reply: Reply) {
    let wanted = call.optional_json::<Rotation>().map(|wanted| (call.param(0).to_owned(), wanted));
    submit(api, call, reply, wanted);
}

/// `POST /integrations/credentials/rotate`
fn rotate_named(api: &Api, call: Call, reply: Reply) {
    let wanted = call.json::<NamedRotation>().map(|wanted| {
        let NamedRotation { credential_id, secret, command, overlap, reason } = wanted;
        (credential_id.0, Rotation { secret, command, overlap, reason })
    });
    submit(api, call, reply, wanted);
}

fn submit(api: &Api, call: Call, reply: Reply, wanted: Result<(String, Rotation), Problem>) {
    let claimed = wanted.and_then(|(id, wanted)| {
        let old = active(api, &call, &id)?;
        let busy = api.flow.credential_rotation.occupy(&id);
        let busy = busy.ok_or_else(|| Problem::conflict(BUSY))?;
        Ok((old, wanted, busy))
    });
    let (old, wanted, busy) = match claimed {
        Ok(claimed) => claimed,
        Err(problem) => return reply.send(api.acted(&call, Err(problem))),
    };
    let own = api.clone();
    let tenant = call.tenant.clone();
    let job = move |turn| {
        let done = match turn {
            Turn::Now => run(&own, &call, &old, wanted),
            Turn::Full => Err(Problem::unavailable(FULL, 5)),
        };
        drop(busy);
        reply.send(own.acted(&call, done));
    };
    api.flow.tests.submit(&tenant, Box::new(job));
}

/// The credential to rotate, which must be in force.
fn active(api: &Api, call: &Call, id: &str) -> Result<Credential, Problem> {
    let found = api.env.store.read(|tx| {
        let Some(found) = credentials::by_id(tx, &call.tenant, id)? else { return Ok(None) };
        let is_sent = match found.owner {
            Owner::Provider(_) | Owner::Source(_) => true,
            Owner::Subscription(seq) => subscriptions::by_seq(tx, seq)?.is_some_and(|found| {
                matches!(found.new.target, Target::Http(_) | Target::Kafka(_))
            }),
        };
        Ok(Some((found, is_sent)))
    })?;
    let (found, is_sent) = found.or_not_found("credential")?;
    if !is_sent {
        return Err(Problem::conflict(
            "Nothing is sent for it, so a new one cannot be verified: set another one with \
             `oncebox credential set`.",
        ));
    }
    if found.state != CredentialState::Active {
        let state = found.state.as_str();
        return Err(Problem::conflict(format!("It is {state}; the active version is rotated.")));
    }
    Ok(found)
}

/// What a rotation is asked for, checked.
struct Order {
    overlap: Duration,
    reason: Option<String>,
}

fn run(
    api: &Api,
    call: &Call,
    old: &Credential,
    wanted: Rotation,
) -> Result<Audited<Value>, Problem> {
    let rotation = &api.flow.credential_rotation;
    let Rotation { secret, command, overlap, reason } = wanted;
    let overlap = span(overlap.as_deref(), "overlap", &OVERLAPS)?.unwrap_or(OVERLAP);
    let order = Order { overlap, reason: bare(reason) };
    let command = bare(command).or_else(|| old.rotation.command.clone());
    let (made, secret) = match (bare(secret), command) {
        (Some(secret), _) => {
            let material = checked(api, call, old, &secret)?;
            (store(api, call, old, Made { material, order, shown: None, claim: None })?, None)
        }
        (None, Some(command)) => (by_command(api, call, old, &command, order)?, None),
        (None, None) => {
            let made =
                rotation.generate(old).filter(|_| matches!(old.owner, Owner::Subscription(_)));
            let secret = made.ok_or_else(|| {
                let detail =
                    "Say what takes its place: give a secret, or name a command of the settings.";
                Problem::unprocessable(detail)
            })?;
            let material = checked(api, call, old, &secret)?;
            let shown = Some(secret.clone());
            (store(api, call, old, Made { material, order, shown, claim: None })?, Some(secret))
        }
    };
    let secret = secret.as_ref().map(|secret| secret.as_str());
    let answer = |made: Credential| value(RotationAnswer { made: shown(&made), secret });
    if old.purpose() == Purpose::Sign {
        return Ok(made.map(answer));
    }
    Ok(verified(api, made).map(|made| {
        let answer = answer(made);
        idempotency::complete(api, call, &answer);
        answer
    }))
}

/// Rotates to the output of a command: every refusal comes before it runs.
fn by_command(
    api: &Api,
    call: &Call,
    old: &Credential,
    name: &str,
    order: Order,
) -> Result<Audited<Credential>, Problem> {
    let command = api.flow.credential_rotation.command(&call.tenant, name).map_err(unusable)?;
    let reserved = claimed::reserve(api, EffectKind::CredentialRotate, &old.id, BUSY)?;
    let wanted = Wanted { reserved, terms: json!({ "command": name }), busy: BUSY };
    let before = old.clone();
    let claim = claimed::claim(api, call, wanted, move |tx| match refused(tx, &before)? {
        Some(why) => Err(Problem::conflict(why).into()),
        None => Ok(()),
    })?;
    let output = command.run(&api.env.clock).map_err(unusable);
    let material = output.and_then(|secret| checked(api, call, old, &secret));
    let effect = Some(claim.effect.clone());
    let done = material.and_then(|material| {
        store(api, call, old, Made { material, order, shown: None, claim: effect })
    });
    if done.is_err() {
        claimed::end(api, claim);
    }
    done
}

/// Checks a new secret for a credential.
fn checked(
    api: &Api,
    call: &Call,
    old: &Credential,
    secret: &str,
) -> Result<ReplacementCredential, Problem> {
    if let Owner::Provider(_) = old.owner {
        let found =
            api.env.store.read(|tx| providers::by_name(tx, &call.tenant, &old.owner_name))?;
        let provider = found.or_not_found("provider")?;
        let checked = provider.new.scheme.check_secret(secret);
        checked.map_err(|error| unusable(error.to_string()))?;
    }
    material(old, secret).map_err(unusable)
}

/// A new version that is about to be stored.
struct Made {
    material: ReplacementCredential,
    order: Order,
    /// The secret, if it was made here and is shown.
    shown: Option<Zeroizing<String>>,
    /// The claim of the rotation, if a command made the secret.
    claim: Option<ClaimedEffect>,
}

/// Stores the new version, with its audit event and the answer to the request.
fn store(
    api: &Api,
    call: &Call,
    old: &Credential,
    made: Made,
) -> Result<Audited<Credential>, Problem> {
    let Made { material, order: Order { overlap, reason }, shown: once, claim } = made;
    let own = api.flow.credential_rotation.clone();
    let now = api.env.clock.wall();
    let before = old.clone();
    let is_claimed = claim.is_some();
    let made = carry_out(api, call, claim, move |tx| {
        let begun = if is_claimed {
            own.begin_claimed(tx, &before, &material, now, overlap)?
        } else {
            own.begin(tx, &before, &material, now, overlap)?
        };
        let row = begun.map_err(Problem::conflict)?;
        let change = Change::made("credential", &row.id, &shown(&row))
            .and("rotated", before.id.as_str())
            .and("reason", reason.as_deref())
            .shown(|made| RotationAnswer {
                made,
                secret: once.as_ref().map(|secret| secret.as_str()),
            });
        Ok((change, row))
    })?;
    Ok(made.map(|(_, row)| row))
}

/// The new version after it was verified. If the process ends before, or the test fails for now, upkeep goes on.
fn verified(api: &Api, made: Audited<Credential>) -> Audited<Credential> {
    made.map(|made| {
        let verified = api.flow.credential_rotation.verify(&made.tenant, &made.id);
        if let Err(error) = verified {
            tracing::error!(%error, credential = made.id, "a credential could not be verified; it is tried again");
        }
        let after = api.env.store.read(|tx| credentials::by_id(tx, &made.tenant, &made.id));
        after.ok().flatten().unwrap_or(made)
    })
}

/// `POST /v1/credentials/{id}/schedule`
fn schedule(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let Schedule { every, command } = call.json()?;
    let every = span(every.as_deref(), "every", &EVERY)?;
    let plan = RotationPlan { every, command: bare(command) };
    let old = active(api, call, call.param(0))?;
    check_plan(&plan, &old, &api.env.settings.get())
        .map_err(|why| Problem::unprocessable(format!("{why}.")))?;
    if plan.command.is_some() && call.tenant != DEFAULT_TENANT {
        let detail = "A command runs on the machine: only the tenant default may name one.";
        return Err(Problem::unprocessable(detail));
    }
    change(api, call, move |tx| {
        credentials::plan(tx, &old.id, &plan)?;
        let after = credentials::by_id(tx, &old.tenant, &old.id)?.or_not_found("credential")?;
        Ok(Change::changed("credential", &old.id, &shown(&old), &shown(&after)))
    })
}

/// `POST /v1/credentials/{id}/reveal`
fn reveal(api: &Api, call: &Call) -> Result<Audited<Value>, Problem> {
    let found = api.env.store.read(|tx| credentials::by_id(tx, &call.tenant, call.param(0)))?;
    let next = found.or_not_found("credential")?;
    if next.state != CredentialState::Next || next.kind() != CredentialKind::Signing {
        let detail = "Only a signing secret that is next is shown: its receiver has to learn it.";
        return Err(Problem::conflict(detail));
    }
    let secret = api.env.keyring.open(&context(&next.id), &next.sealed);
    let secret = secret.map_err(|error| Problem::internal(error.to_string()))?;
    let id = next.id.clone();
    let now = api.env.clock.wall();
    change(api, call, move |tx| {
        rotations::seen(tx, &id, now)?;
        let next = shown(&next);
        let change = Change::changed("credential", &id, &next, &next);
        Ok(change.shown(|made| RotationAnswer { made, secret: secret.expose_text() }))
    })
}

fn span(
    text: Option<&str>,
    name: &str,
    bounds: &RangeInclusive<Duration>,
) -> Result<Option<Duration>, Problem> {
    let Some(text) = text else { return Ok(None) };
    let read = humantime::parse_duration(text).ok().filter(|span| bounds.contains(span));
    read.map(Some).ok_or_else(|| {
        let [least, most] =
            [bounds.start(), bounds.end()].map(|span| humantime::format_duration(*span));
        Problem::unprocessable(format!(
            "{name} {text:?} must be a span like 24h, from {least} to {most}."
        ))
    })
}
