//! The first admin of a box. A code that the service prints when it starts lets a browser make it, once.

use zeroize::Zeroizing;

use crate::api::audited::origin;
use crate::api::people::NewSession;
use crate::api::prelude::*;
use crate::api::users::hash_of;
use crate::base::id;
use crate::base::secret::SecretBytes;
use crate::http::message::Head;
use crate::model::audit::changes::Changes;
use crate::model::audit::{Actor, NewAuditEvent};
use crate::model::name::Name;
use crate::model::token::Role;
use crate::store::audit_events;
use crate::store::users::{self, NewUser};

/// The letters of a code, 5 bits each, and none like another one: I and L are read as 1, O as 0.
const LETTERS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
/// Letters of a code: 140 bits.
const CODE_CHARS: usize = 28;
/// Letters between two dashes.
const GROUP: usize = 4;

impl Api {
    /// A new code for the first admin, in place of an earlier one; `None` if there is a user or no console.
    pub fn offer_first_code(&self) -> Option<Zeroizing<String>> {
        if !self.env.settings.get().console.enabled || self.has_users().unwrap_or(true) {
            return None;
        }
        let mut bytes = Zeroizing::new([0_u8; CODE_CHARS]);
        self.env.draw.fill(&mut *bytes);
        let letter = |byte: &u8| LETTERS.get(usize::from(byte % 32)).copied().map(char::from);
        let groups: Vec<String> =
            bytes.chunks(GROUP).map(|group| group.iter().filter_map(letter).collect()).collect();
        let code = Zeroizing::new(groups.join("-"));
        *self.auth.log_ins().first_code.lock() = Some(plain(&code));
        Some(code)
    }

    /// Makes the first admin of the box and logs it in, with the code that was offered.
    /// Fails with 401 when the code is wrong, 409 when there is a user, 422 when the password cannot be used, 429 after
    /// too many failures.
    pub fn make_first_admin(
        &self,
        head: &Head,
        code: &str,
        name: &Name,
        password: &str,
    ) -> Result<NewSession, Problem> {
        let log_ins = self.auth.log_ins();
        let refused = |problem| self.refused(head, Some(name.as_str()), problem);
        let whose = Some((DEFAULT_TENANT, name.as_str()));
        log_ins.check(head.client, whose, self.env.clock.monotonic()).map_err(refused)?;
        let taken = || Problem::conflict("There is a user already. Log in.");
        if self.has_users()? {
            return Err(refused(taken()));
        }
        if *log_ins.first_code.lock() != Some(plain(code)) {
            log_ins.failed(head.client, whose, self.env.clock.monotonic());
            return Err(refused(Problem::log_in_failed("The code is wrong.")));
        }
        let now = self.env.clock.wall();
        let new = NewUser {
            id: id::uuid7(now, &*self.env.draw),
            tenant: DEFAULT_TENANT.to_owned(),
            name: name.to_string(),
            role: Role::Admin,
            password_hash: Some(hash_of(self, password)?),
        };
        let origin = origin(head);
        // Two browsers may have the code: the first commit decides.
        let begun = self.begin(head, "code", move |tx, now| {
            if users::any(tx)? || !users::insert(tx, &new, now)? {
                return Ok(None);
            }
            let user = users::by_name(tx, &new.tenant, &new.name)?.map(|found| found.user);
            let changes = Changes::between(&Value::Null, &value(&user)).and("by", "code");
            let event =
                NewAuditEvent::local(now, DEFAULT_TENANT, Actor::anonymous(), "user.create");
            let event = NewAuditEvent { origin: origin.clone(), ..event };
            audit_events::append(tx, &event.of("user", &new.id, changes))?;
            Ok(user)
        })?;
        self.forget_first_code();
        begun.ok_or_else(|| refused(taken()))
    }

    /// Makes the code void: there is a user.
    pub(super) fn forget_first_code(&self) {
        *self.auth.log_ins().first_code.lock() = None;
    }
}

/// A code without what people may write otherwise: case, dashes, spaces, and letters that look like digits.
fn plain(code: &str) -> SecretBytes {
    let bytes = code.bytes().filter(u8::is_ascii_alphanumeric).map(|byte| {
        match byte.to_ascii_lowercase() {
            b'o' => b'0',
            b'i' | b'l' => b'1',
            byte => byte,
        }
    });
    SecretBytes::new(bytes.collect())
}
