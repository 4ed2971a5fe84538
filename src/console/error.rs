//! Why a page cannot be shown, in words for its reader.

use serde_json::Value;

use crate::console::form::FormRefusal;
use crate::console::json::Fields as _;
use crate::console::texts::Texts;
use crate::http::message::Response;

/// How the API begins to say that a body has another form.
const OF_BODY: &str = "The body does not have the expected form: ";

/// What is shown instead of a page.
#[derive(Clone, Debug)]
pub(super) struct PageError {
    pub(super) status: u16,
    pub(super) title: String,
    pub(super) detail: String,
    /// What was looked for and is not there.
    pub(super) missing: Option<String>,
    /// The field of a form that cannot be used.
    pub(super) field: Option<String>,
}

impl PageError {
    fn new(status: u16, title: &str, detail: &str) -> Self {
        Self {
            status,
            title: title.to_owned(),
            detail: detail.to_owned(),
            missing: None,
            field: None,
        }
    }

    /// A field of a form cannot be used.
    pub(super) fn field(t: &Texts, path: &str, detail: &str) -> Self {
        Self { field: Some(path.to_owned()), ..Self::new(422, t.error_form, detail) }
    }

    /// Says which field the API means: its detail begins with the field's name, or names it with all objects around it. A person
    /// is told about the field, not about a body.
    pub(super) fn at_field(self, paths: &[&str]) -> Self {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words: Vec<&str> = self
            .detail
            .trim_start_matches(OF_BODY)
            .trim_start_matches("The ")
            .split(|c| !is_part(c))
            .collect();
        let is_meant = |path: &&&str| {
            let mut parts = path.split('.');
            let is_telling =
                path.contains(['.', '_']) && parts.clone().all(|part| words.contains(&part));
            let last = parts.next_back();
            let is_quoted = last.is_some_and(|last| self.detail.contains(&format!("`{last}`")));
            is_telling || is_quoted || words.first() == last.as_ref()
        };
        let field = paths.iter().filter(is_meant).max_by_key(|path| path.len());
        let detail = self.detail.trim_start_matches(OF_BODY).to_owned();
        Self { field: field.map(|path| (*path).to_owned()), detail, ..self }
    }

    /// If the thing that a page shows is not there: says which. `path` is the page's.
    pub(super) fn naming(self, t: &Texts, path: &str, name: &str) -> Self {
        let noun = match path.split("/{").next().and_then(|path| path.strip_prefix("/console/")) {
            _ if self.status != 404 => return self,
            Some("events") => t.event,
            Some("webhooks") => t.webhook,
            Some("deliveries") => t.delivery,
            Some("subscriptions") => t.subscription,
            Some("subscriptions/tests") => t.test,
            Some("events/types") => t.event_type,
            Some("jobs") => t.job,
            Some("sources") => t.source,
            Some("providers") => t.provider,
            _ => return Self::not_found(t),
        };
        let name: String = name.chars().take(100).collect();
        let title = format!("{} {} {name}", t.there_is_no, noun.to_lowercase());
        Self { missing: Some(name), ..Self::new(404, &title, t.error_no_page_help) }
    }

    /// The problem that the API answered.
    pub(super) fn of(response: Response) -> Self {
        let body: Value = serde_json::from_slice(&response.body).unwrap_or_default();
        Self::new(response.status, body.text("title"), body.text("detail"))
    }

    /// A form cannot be read.
    pub(super) fn form_refused(t: &Texts, why: FormRefusal) -> Self {
        match why {
            FormRefusal::TooLarge => Self::new(413, t.error_form_size, t.error_form_size_help),
            FormRefusal::NoMemory => Self::new(503, t.error_busy, t.error_busy_help),
            FormRefusal::BadBoundary => Self::new(400, t.error_form_parts, t.error_form_parts_help),
        }
    }

    /// There is no such page.
    pub(super) fn not_found(t: &Texts) -> Self {
        Self::new(404, t.error_no_page, t.error_no_page_help)
    }

    /// The person's role does not allow it.
    pub(super) fn forbidden(t: &Texts) -> Self {
        Self::new(403, t.error_forbidden, t.error_forbidden_help)
    }

    /// A form came without a session.
    pub(super) fn logged_out(t: &Texts) -> Self {
        Self::new(401, t.error_logged_out, t.error_logged_out_help)
    }

    /// A form did not come from this session's page.
    pub(super) fn foreign_form(t: &Texts) -> Self {
        Self::new(403, t.error_foreign_form, t.error_foreign_form_help)
    }

    /// The same form is still being carried out.
    pub(super) fn running(t: &Texts) -> Self {
        Self::new(409, t.error_running, t.error_running_help)
    }
}
