//! Words of the API in people's words, and their meaning: one table for badges, tabs, filters, labels and legends.

use maud::{Markup, html};

use crate::console::texts::Texts;

/// A word that needs an explanation.
struct Term {
    /// The word, as the API says it.
    api: &'static str,
    /// The word that pages show.
    shown: &'static str,
    meaning: &'static str,
}

const fn term(api: &'static str, shown: &'static str, meaning: &'static str) -> Term {
    Term { api, shown, meaning }
}

const TERMS: [Term; 16] = [
    term(
        "leased",
        "fetched",
        "The receiver has fetched it, and has not said yet what came of it. If the receiver stays silent, it is offered again.",
    ),
    term(
        "parked",
        "set aside",
        "It is not sent until a person releases or skips it. Later ones do not wait for it.",
    ),
    term(
        "in_doubt",
        "perhaps sent",
        "It may have been sent before the database was restored from a backup. A person sends or skips it.",
    ),
    term(
        "dead_letter",
        "dead letter",
        "It was refused for good, or tried as often as allowed. Only a person sends it again.",
    ),
    term(
        "quarantined",
        "quarantined",
        "It cannot be used as it came. A person corrects or discards it.",
    ),
    term(
        "transient",
        "temporary error",
        "No answer, or an error of the target that may pass. It is tried again without you.",
    ),
    term("rate_limited", "asked to wait", WAIT),
    term("rate_limit", "asked to wait", WAIT),
    term(
        "auth",
        "credential refused",
        "The target does not accept the password, key or token that is sent with each request.",
    ),
    term(
        "validation",
        "content refused",
        "The target refuses this content, and would refuse it again. A person corrects it, or the target.",
    ),
    term("gone", "target gone", "The target says that it wants nothing more (410)."),
    term(
        "poison",
        "cannot be sent",
        "The request cannot be made, or fails while all others succeed.",
    ),
    term(
        "breaker",
        "target failing",
        "Several attempts in a row failed. One is tried now and then; when it succeeds, all are sent.",
    ),
    term(
        "rejecting",
        "target refuses",
        "The target refused several deliveries in a row. Nothing is sent until a person resumes it, or changes the subscription.",
    ),
    term(
        "DISABLED_DEAD",
        "switched off",
        "The target wants nothing more, or has failed for five days. A person resumes it.",
    ),
    term(
        "lane",
        "lane",
        "What belongs together, such as all events of one invoice, is sent in its order, one after another.",
    ),
];

/// The meaning of `rate_limited` and `rate_limit`.
const WAIT: &str = "The target asked for a pause. It is tried again without you.";

fn find(api: &str) -> Option<&'static Term> {
    TERMS.iter().find(|term| term.api == api)
}

/// A word of the API as people write it: `in_doubt` is "perhaps sent", `rate_limit_burst` "rate limit burst".
pub(super) fn word(text: &str) -> String {
    match find(text) {
        Some(term) => term.shown.to_owned(),
        None => text.replace(['_', '.'], " ").to_lowercase(),
    }
}

/// The mark of a word that the page's legend explains; `None` for a word that explains itself.
pub(super) fn explained(api: &str) -> Option<&'static str> {
    find(api).map(|term| term.api)
}

/// The meaning of each marked word and label of a page, folded. A key opens the fold; nothing needs a mouse.
pub(super) fn legend(t: &Texts, body: &Markup) -> Markup {
    let is_there = |term: &&Term| {
        let label = t.find(term.api).unwrap_or_default();
        let marks = [
            // In a badge.
            ("</span> ", term.shown),
            ("data-word=\"", term.api),
            ("data-head=\"", label),
            ("<dt>", label),
        ];
        marks.iter().any(|(before, word)| is_marked(&body.0, before, word))
    };
    let there: Vec<&Term> = TERMS.iter().filter(is_there).collect();
    html! {
        @if !there.is_empty() {
            details.words {
                summary { (t.words_here) }
                dl { @for term in there { dt { (term.shown) } dd { (term.meaning) } } }
            }
        }
    }
}

/// Whether a word stands somewhere behind a mark, as a whole.
fn is_marked(body: &str, mark: &str, word: &str) -> bool {
    let after = |at: usize| body.get(at.saturating_add(mark.len())..).unwrap_or_default();
    let rests = body.match_indices(mark).filter_map(|(at, _)| after(at).strip_prefix(word));
    !word.is_empty() && rests.into_iter().any(|rest| rest.starts_with(['"', '<']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::console::elements::state;
    use crate::console::texts::EN;

    #[test]
    fn a_legend_explains_the_words_of_its_page_and_no_others() {
        assert_eq!(word("parked"), "set aside");
        assert_eq!(word("rate_limit_burst"), "rate limit burst");
        let body = html! { (state("parked")) (state("completed")) "data-word=\"leased\"" };
        let legend = legend(&EN, &body).0;
        assert!(legend.contains("<dt>set aside</dt>"), "{legend}");
        assert!(!legend.contains("fetched") && !legend.contains("completed"), "{legend}");
        assert_eq!(super::legend(&EN, &state("completed")).0, "");
        let label = html! { td data-head=(EN.lane) { "R-1" } };
        assert!(super::legend(&EN, &label).0.contains("<dt>lane</dt>"));
    }
}
