//! Which rules of a policy apply at a path of a body, and what each does with the value there.

use std::ops::Range;

use crate::model::json_path::{MatchState, Step};
use crate::model::sealed::Form;
use crate::privacy::policy::detect::{self, Detector};
use crate::privacy::policy::rules::{Action, MAX_RULES, Policy, Refused};

/// Edits of one body at most, because each takes memory beside the body.
pub(super) const MAX_EDITS: usize = 100_000;

/// The replacement of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum With {
    /// This text.
    Text(String),
    /// The span, sealed.
    Seal(Form),
}

/// A span of the body and its replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The span.
    pub span: Range<usize>,
    /// Its replacement.
    pub with: With,
}

/// What a rule did, for a person who tries a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule's number, from 1.
    pub rule: usize,
    /// What it did.
    pub action: Action,
    /// The path or position of the value.
    pub path: String,
    /// The detector that found it; `None`: the rule's path names it.
    pub detector: Option<Detector>,
}

/// A match of a detector in a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Match {
    pub(super) span: Range<usize>,
    /// The rule's index, from 0.
    pub(super) rule: usize,
    pub(super) detector: Detector,
}

/// The state of each rule at a value of the body.
#[derive(Clone, Copy)]
pub(super) struct Level {
    reached: [MatchState; MAX_RULES],
    /// A bit for each rule whose path names this value or a value above, and for rules without a path.
    inside: u32,
    /// The rule that applies to everything in this value, except where another rule allows it.
    pub(super) acting: Option<usize>,
    pub(super) depth: usize,
}

impl Level {
    /// This state, with the rules that are in force at another value besides.
    pub(super) fn joined(self, other: &Self) -> Self {
        Self { inside: self.inside | other.inside, ..self }
    }
}

impl Policy {
    /// The matches of detectors in a text, by the rules without a path.
    pub(super) fn find_in(&self, text: &str) -> Vec<Match> {
        self.find_at(text, &self.level())
    }

    /// The matches of detectors in a text at `level`: in order and not overlapping, earlier rules first.
    pub(super) fn find_at(&self, text: &str, level: &Level) -> Vec<Match> {
        let rules = self.rules.iter().enumerate().filter(|(n, _)| level.inside & (1 << n) != 0);
        let asked = rules.flat_map(|(n, rule)| rule.detect.iter().map(move |kind| (n, *kind)));
        let mut all: Vec<Match> = Vec::new();
        for (rule, detector) in asked {
            let before = all.len();
            for span in detector.find(text) {
                // Earlier matches are sorted, so a binary search finds the only one that could overlap.
                let known = all.get(..before).unwrap_or_default();
                let next = known.partition_point(|other| other.span.end <= span.start);
                let is_new = known.get(next).is_none_or(|other| span.end <= other.span.start);
                if is_new && all.len() <= MAX_EDITS {
                    all.push(Match { span, rule, detector });
                }
            }
            all.sort_by_key(|found| found.span.start);
        }
        all
    }

    /// The state at the root of the body.
    pub(super) fn level(&self) -> Level {
        let mut level =
            Level { reached: [MatchState::DEAD; MAX_RULES], inside: 0, acting: None, depth: 0 };
        for ((n, rule), reached) in self.rules.iter().enumerate().zip(&mut level.reached) {
            match &rule.path {
                Some(_) => *reached = MatchState::START,
                None => level.inside |= 1 << n,
            }
        }
        level
    }

    /// The state one path step further down.
    pub(super) fn step(&self, from: &Level, step: Step<'_>) -> Level {
        let mut level = Level { depth: from.depth + 1, ..*from };
        for (rule, reached) in self.rules.iter().zip(&mut level.reached) {
            if let Some(path) = &rule.path {
                *reached = path.step(*reached, step);
            }
        }
        level
    }

    /// The state with the rules whose path ends here; `None` if a rule allows this value as it is.
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

    /// Whether a rule may allow a value below this one.
    pub(super) fn may_except_below(&self, level: &Level) -> bool {
        self.rules
            .iter()
            .zip(level.reached)
            .any(|(rule, reached)| rule.action == Action::Allow && !reached.is_dead())
    }
}

/// The application of a policy to one body.
pub(super) struct PolicyRun<'a> {
    pub(super) policy: &'a Policy,
    pub(super) hash: &'a dyn Fn(&str) -> String,
    pub(super) edits: Vec<Edit>,
    pub(super) findings: Vec<Finding>,
    pub(super) explain: bool,
}

/// The treatment of a value that a rule matches.
pub(super) enum Treatment {
    Drop,
    Seal,
    Text(String),
}

impl PolicyRun<'_> {
    pub(super) fn edit(&mut self, span: Range<usize>, with: With) {
        self.edit_at(self.edits.len(), span, with);
    }

    /// Inserts an edit at this index.
    pub(super) fn edit_at(&mut self, index: usize, span: Range<usize>, with: With) {
        // One edit above the limit is stored, to show that there are too many.
        if self.edits.len() <= MAX_EDITS {
            self.edits.insert(index.min(self.edits.len()), Edit { span, with });
        }
    }

    /// The action of a rule.
    pub(super) fn action(&self, rule: usize) -> Action {
        self.policy.rules.get(rule).map_or(Action::Reject, |rule| rule.action)
    }

    /// Applies a rule to a text that its path names.
    pub(super) fn named(
        &mut self,
        rule: usize,
        text: &str,
        path: impl FnOnce() -> String,
    ) -> Result<Treatment, Refused> {
        let action = self.note(rule, None, path)?;
        Ok(match action {
            Action::Drop => Treatment::Drop,
            Action::Seal => Treatment::Seal,
            Action::Hash => Treatment::Text((self.hash)(text)),
            _ => Treatment::Text(whole_mask(text)),
        })
    }

    /// Applies rules to the matches in a text; `None` if there are none.
    pub(super) fn detected(
        &mut self,
        text: &str,
        level: &Level,
        path: impl Fn() -> String,
    ) -> Result<Option<Treatment>, Refused> {
        let mut left = String::new();
        let mut past = 0;
        let mut drop = false;
        let mut seal = false;
        for Match { span, rule, detector } in self.policy.find_at(text, level) {
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
            (_, true, _) => Some(Treatment::Drop),
            (_, false, true) => Some(Treatment::Seal),
            _ => Some(Treatment::Text(left)),
        })
    }

    /// The replacement of one match in a text that is replaced piece by piece.
    pub(super) fn piece(
        &mut self,
        found: &Match,
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

/// The masked form of a text that a path names; an e-mail address shows its domain.
fn whole_mask(text: &str) -> String {
    let address = Detector::Email.find(text);
    if matches!(address.as_slice(), [span] if *span == (0..text.len())) {
        return Detector::Email.mask(text);
    }
    detect::mask(text)
}
