//! Which rules of a policy apply at a place of a body, and what each does with the value there.

use std::ops::Range;

use crate::model::json_path::{Reached, Step};
use crate::model::sealed::Form;
use crate::privacy::policy::detect::{self, Detector};
use crate::privacy::policy::rules::Refused;
use crate::privacy::policy::rules::{Action, MAX_RULES, Policy};

/// Places of one body that a policy changes at most: each takes memory beside the body.
pub(super) const MAX_EDITS: usize = 100_000;

/// What takes the place of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum With {
    /// This text.
    Text(String),
    /// The span, sealed.
    Seal(Form),
}

/// A span of the body and what takes its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// Where.
    pub span: Range<usize>,
    /// By what.
    pub with: With,
}

/// What a rule did, for a person who tries a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Which, from 1.
    pub rule: usize,
    /// What it did.
    pub action: Action,
    /// Where.
    pub path: String,
    /// What was found there; `None`: the path itself names it.
    pub detector: Option<Detector>,
}

/// Something found in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) span: Range<usize>,
    /// The rule's place, from 0.
    pub(super) rule: usize,
    pub(super) detector: Detector,
}

/// Where a reader is, for each rule.
#[derive(Clone, Copy)]
pub(super) struct Level {
    reached: [Reached; MAX_RULES],
    /// One bit for each rule whose path names this place or one above, and for those without a path.
    inside: u32,
    /// The rule that is carried out on everything here that is not excepted.
    pub(super) acting: Option<usize>,
    pub(super) depth: usize,
}

impl Policy {
    /// What detectors that are not bound to a place find in a text.
    pub(super) fn found_in(&self, text: &str) -> Vec<Found> {
        self.found(text, &self.level())
    }

    /// What detectors find in a text at a place: in order, none within another, earlier rules first.
    pub(super) fn found(&self, text: &str, level: &Level) -> Vec<Found> {
        let rules = self.rules.iter().enumerate().filter(|(n, _)| level.inside & (1 << n) != 0);
        let asked = rules.flat_map(|(n, rule)| rule.detect.iter().map(move |kind| (n, *kind)));
        let mut all: Vec<Found> = Vec::new();
        for (rule, detector) in asked {
            let before = all.len();
            for span in detector.find(text) {
                // Those of the detectors before are in order: one look finds the only one it could meet.
                let known = all.get(..before).unwrap_or_default();
                let next = known.partition_point(|other| other.span.end <= span.start);
                let is_new = known.get(next).is_none_or(|other| span.end <= other.span.start);
                if is_new && all.len() <= MAX_EDITS {
                    all.push(Found { span, rule, detector });
                }
            }
            all.sort_by_key(|found| found.span.start);
        }
        all
    }

    /// At the whole body.
    pub(super) fn level(&self) -> Level {
        let mut level =
            Level { reached: [Reached::LOST; MAX_RULES], inside: 0, acting: None, depth: 0 };
        for ((n, rule), reached) in self.rules.iter().enumerate().zip(&mut level.reached) {
            match &rule.path {
                Some(path) => *reached = path.start(),
                None => level.inside |= 1 << n,
            }
        }
        level
    }

    /// One step further down.
    pub(super) fn step(&self, from: &Level, step: Step<'_>) -> Level {
        let mut level = Level { depth: from.depth + 1, ..*from };
        for (rule, reached) in self.rules.iter().zip(&mut level.reached) {
            if let Some(path) = &rule.path {
                *reached = path.step(*reached, step);
            }
        }
        level
    }

    /// What the rules say of the place itself; `None`: it is excepted.
    pub(super) fn arrive(&self, level: &Level) -> Option<Level> {
        let mut here = *level;
        for ((n, rule), reached) in self.rules.iter().enumerate().zip(level.reached) {
            if !rule.path.as_ref().is_some_and(|path| path.is_at(reached)) {
                continue;
            }
            if rule.action == Action::Allow {
                return None;
            }
            here.inside |= 1 << n;
            if rule.detect.is_empty() && here.acting.is_none() {
                here.acting = Some(n);
            }
        }
        Some(here)
    }

    /// Whether something below may be excepted.
    pub(super) fn may_except_below(&self, level: &Level) -> bool {
        self.rules
            .iter()
            .zip(level.reached)
            .any(|(rule, reached)| rule.action == Action::Allow && !reached.is_lost())
    }
}

/// A policy that is being carried out.
pub(super) struct PolicyRun<'a> {
    pub(super) policy: &'a Policy,
    pub(super) hash: &'a dyn Fn(&str) -> String,
    pub(super) edits: Vec<Edit>,
    pub(super) findings: Vec<Finding>,
    pub(super) explain: bool,
}

/// What becomes of a text in which detectors found something, or that a path names.
pub(super) enum Verdict {
    Drop,
    Seal,
    Text(String),
}

impl PolicyRun<'_> {
    pub(super) fn edit(&mut self, span: Range<usize>, with: With) {
        self.edit_at(self.edits.len(), span, with);
    }

    /// How many edits there are, as a place for [`PolicyRun::edit_at`].
    pub(super) fn here(&self) -> usize {
        self.edits.len()
    }

    /// An edit before those that were made since.
    pub(super) fn edit_at(&mut self, here: usize, span: Range<usize>, with: With) {
        // One more than may be tells that there are too many.
        if self.edits.len() <= MAX_EDITS {
            self.edits.insert(here.min(self.edits.len()), Edit { span, with });
        }
    }

    /// What a rule does.
    pub(super) fn action(&self, rule: usize) -> Action {
        self.policy.rules.get(rule).map_or(Action::Reject, |rule| rule.action)
    }

    /// Carries out a rule on a text that a path names.
    pub(super) fn named(
        &mut self,
        rule: usize,
        text: &str,
        path: impl FnOnce() -> String,
    ) -> Result<Verdict, Refused> {
        let action = self.note(rule, None, path)?;
        Ok(match action {
            Action::Drop => Verdict::Drop,
            Action::Seal => Verdict::Seal,
            Action::Hash => Verdict::Text((self.hash)(text)),
            _ => Verdict::Text(whole_mask(text)),
        })
    }

    /// Carries out what is found in a text; `None`: nothing is.
    pub(super) fn detected(
        &mut self,
        text: &str,
        level: &Level,
        path: impl Fn() -> String,
    ) -> Result<Option<Verdict>, Refused> {
        let mut left = String::new();
        let mut past = 0;
        let (mut drop, mut seal) = (false, false);
        for Found { span, rule, detector } in self.policy.found(text, level) {
            let found = text.get(span.clone()).unwrap_or_default();
            left.push_str(text.get(past..span.start).unwrap_or_default());
            past = span.end;
            match self.note(rule, Some(detector), &path)? {
                Action::Drop => drop = true,
                Action::Seal => seal = true,
                Action::Hash => left.push_str(&(self.hash)(found)),
                _ => left.push_str(&detector.mask(found)),
            }
        }
        left.push_str(text.get(past..).unwrap_or_default());
        Ok(match (past, drop, seal) {
            (0, ..) => None,
            (_, true, _) => Some(Verdict::Drop),
            (_, false, true) => Some(Verdict::Seal),
            _ => Some(Verdict::Text(left)),
        })
    }

    /// What becomes of one finding in a text that is replaced piece by piece.
    pub(super) fn piece(
        &mut self,
        found: &Found,
        text: &str,
        path: impl FnOnce() -> String,
    ) -> Result<With, Refused> {
        let action = self.note(found.rule, Some(found.detector), path)?;
        Ok(match action {
            Action::Drop => With::Text(String::new()),
            Action::Seal => With::Seal(Form::Part),
            Action::Hash => With::Text((self.hash)(text)),
            _ => With::Text(found.detector.mask(text)),
        })
    }

    fn note(
        &mut self,
        rule: usize,
        detector: Option<Detector>,
        path: impl FnOnce() -> String,
    ) -> Result<Action, Refused> {
        let action = self.action(rule);
        let rule = rule + 1;
        if action == Action::Reject {
            return Err(Refused::Rule { rule, path: path(), detector });
        }
        if self.explain {
            self.findings.push(Finding { rule, action, path: path(), detector });
        }
        Ok(action)
    }
}

/// The mask of a text that a path names: of an address its domain.
fn whole_mask(text: &str) -> String {
    let address = Detector::Email.find(text);
    if matches!(address.as_slice(), [span] if *span == (0..text.len())) {
        return Detector::Email.mask(text);
    }
    detect::mask(text)
}
