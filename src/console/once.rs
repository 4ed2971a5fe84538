//! Each form is carried out once: a second click, or a browser that sends again, gets the first answer.

use std::collections::VecDeque;

use parking_lot::Mutex;

/// Forms that are remembered. The oldest is forgotten first.
const MAX_REMEMBERED: usize = 1000;

/// What is known of a form that comes in.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Submission {
    /// It is new: carry it out.
    First,
    /// It is being carried out.
    Running,
    /// It was carried out; the page that showed the result.
    Done(String),
}

/// Forms that were sent, by session and number of the form; with the page after it, once it is done.
#[derive(Debug, Default)]
pub(super) struct Submissions(Mutex<VecDeque<(String, Option<String>)>>);

impl Submissions {
    /// Begins a form, unless it is known.
    pub(super) fn begin(&self, key: &str) -> Submission {
        let mut known = self.0.lock();
        if let Some((_, page)) = known.iter().find(|(have, _)| have == key) {
            return page.clone().map_or(Submission::Running, Submission::Done);
        }
        if known.len() >= MAX_REMEMBERED {
            known.pop_front();
        }
        known.push_back((key.to_owned(), None));
        Submission::First
    }

    /// Ends a form that succeeded.
    pub(super) fn done(&self, key: &str, page: &str) {
        if let Some((_, have)) = self.0.lock().iter_mut().find(|(have, _)| have == key) {
            *have = Some(page.to_owned());
        }
    }

    /// Forgets a form that failed, so that it can be corrected and sent again.
    pub(super) fn failed(&self, key: &str) {
        self.0.lock().retain(|(have, _)| have != key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_form_runs_once_unless_it_failed() {
        let forms = Submissions::default();
        assert_eq!(forms.begin("a"), Submission::First);
        assert_eq!(forms.begin("a"), Submission::Running);
        forms.done("a", "/console/");
        assert_eq!(forms.begin("a"), Submission::Done("/console/".to_owned()));
        assert_eq!(forms.begin("b"), Submission::First);
        forms.failed("b");
        assert_eq!(forms.begin("b"), Submission::First);
        for n in 0..MAX_REMEMBERED {
            forms.begin(&n.to_string());
        }
        assert_eq!(forms.begin("a"), Submission::First, "the oldest is forgotten");
    }
}
