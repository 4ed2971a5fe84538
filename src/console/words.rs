//! Words of the API in people's words, and their meaning: one table for badges, tabs, filters, labels and legends.

use std::collections::BTreeSet;

use maud::{Markup, PreEscaped, html};

use crate::console::texts::Texts;

/// A word that needs an explanation.
struct Term {
    /// The word, as the API says it; empty for the label of buttons.
    api: &'static str,
    /// The word that pages show.
    shown: &'static str,
    meaning: &'static str,
    /// The actions whose buttons say it.
    actions: &'static [&'static str],
}

const fn term(api: &'static str, shown: &'static str, meaning: &'static str) -> Term {
    Term { api, shown, meaning, actions: &[] }
}

/// The label of these actions' buttons.
const fn label(
    actions: &'static [&'static str],
    shown: &'static str,
    meaning: &'static str,
) -> Term {
    Term { api: "", shown, meaning, actions }
}

const TERMS: [Term; 27] = [
    term(
        "pending",
        "waiting",
        "It has not been sent yet, or is tried again. The page of its event says what it waits for.",
    ),
    term(
        "waiting",
        "to be confirmed",
        "The target has taken it, and has yet to say that it is done. Without an answer it is sent again, or given up.",
    ),
    term("retrying", "retrying", "An attempt failed. It is tried again without you."),
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
    term(
        "blocked",
        "blocked",
        "The first one of this lane was given up. Those behind it wait until a person sends, skips or cancels it.",
    ),
    term(
        "held",
        "held",
        "Nothing of it is sent now. Why, and what ends it, stands beside it or on its page.",
    ),
    label(
        &["skip", "skip-in-doubt"],
        "skip",
        "It is not sent, and counts as done: those behind it go on. It can still be sent again.",
    ),
    label(
        &["cancel-delivery", "cancel-event"],
        "cancel",
        "It is stopped and no longer tried. What was sent stays sent. It can still be sent again.",
    ),
    label(&["cancel-job"], "cancel", "The job ends where it is. What it has done stays done."),
    label(
        &["discard-dead-letters", "discard-picked", "discard-event"],
        "discard",
        "It is not sent, and nobody has to look at it any more. It stays stored, with your reason.",
    ),
    label(
        &["park"],
        "set aside",
        "It is not sent until a person releases or skips it. Later ones do not wait for it.",
    ),
    label(&["release", "release-in-doubt"], "release", "It is sent in its turn."),
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

/// How a page says a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    /// In a badge, the head of a column, or the name of a fact.
    Text,
    /// In an element that is marked with the word of the API: a tab, or a cell.
    Marked,
    /// On the button of an action.
    Button,
}

/// Marks of the pages' HTML before a word, and how the page says the word. Stored text has no marks, because pages escape it.
const MARKS: [(&str, Spot); 5] = [
    ("</span> ", Spot::Text),
    ("<th scope=\"col\">", Spot::Text),
    ("<dt>", Spot::Text),
    (" data-word=\"", Spot::Marked),
    (" href=\"/console/act/", Spot::Button),
];

/// The first place of a word on a page.
struct Place {
    /// Where its mark begins.
    mark_at: usize,
    /// Where the word begins.
    word_at: usize,
    /// Where the word ends.
    end: usize,
    spot: Spot,
    term: &'static Term,
}

/// The words of a page that have a meaning, each at its first place; in the order of the page.
fn places(body: &str) -> Vec<Place> {
    let mut all: Vec<Place> = Vec::new();
    for (mark, spot) in MARKS {
        all.extend(body.match_indices(mark).filter_map(|(mark_at, _)| {
            let word_at = mark_at.saturating_add(mark.len());
            let rest = body.get(word_at..)?;
            let word = rest.get(..rest.find(['<', '"', '?'])?)?;
            let is_said = |term: &&Term| match spot {
                Spot::Text => !term.api.is_empty() && term.shown.eq_ignore_ascii_case(word),
                Spot::Marked => term.api == word,
                Spot::Button => term.actions.contains(&word),
            };
            let term = TERMS.iter().find(is_said)?;
            Some(Place { mark_at, word_at, end: word_at.saturating_add(word.len()), spot, term })
        }));
    }
    all.sort_by_key(|place| place.mark_at);
    let mut said: Vec<&str> = Vec::new();
    all.retain(|place| {
        let is_new = !said.contains(&place.term.meaning);
        said.push(place.term.meaning);
        is_new
    });
    all
}

/// A page with the meaning of each word at its first place: below the pointer, and beside the word on focus.
pub(super) fn with_meanings(body: &Markup) -> Markup {
    let body = body.0.as_str();
    let mut page = String::with_capacity(body.len().saturating_mul(2));
    let mut from = 0;
    let mut add = |parts: &[&str]| parts.iter().for_each(|part| page.push_str(part));
    for Place { mark_at, word_at, end, spot, term } in places(body) {
        let text = |from: usize, to: usize| body.get(from..to).unwrap_or_default();
        let before = text(0, mark_at);
        if spot == Spot::Text {
            let word = text(word_at, end);
            add(&[
                text(from, word_at),
                "<abbr tabindex=\"0\" title=\"",
                term.meaning,
                "\">",
                word,
                "</abbr>",
            ]);
            from = end;
        } else {
            // A link has the focus by itself.
            let is_link = before.rsplit('<').next().is_some_and(|tag| tag.starts_with("a "));
            let focus = if is_link { "" } else { " tabindex=\"0\"" };
            add(&[text(from, mark_at), focus, " title=\"", term.meaning, "\""]);
            from = mark_at;
        }
    }
    add(&[body.get(from..).unwrap_or_default()]);
    PreEscaped(page)
}

/// The meaning of each word with a meaning on a page, folded. A key opens the fold; nothing needs a mouse.
pub(super) fn legend(t: &Texts, body: &Markup) -> Markup {
    let said: Vec<&str> = places(&body.0).iter().map(|place| place.term.meaning).collect();
    let mut there: Vec<&Term> = TERMS.iter().filter(|term| said.contains(&term.meaning)).collect();
    // A badge and a button may say the same.
    let mut shown = BTreeSet::new();
    there.retain(|term| shown.insert((term.shown, term.meaning)));
    html! {
        @if !there.is_empty() {
            details.words {
                summary { (t.words_here) }
                dl { @for term in there { dt { (term.shown) } dd { (term.meaning) } } }
            }
        }
    }
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
        assert_eq!(legend.matches("<dt>set aside</dt>").count(), 1, "a button says the same");
        let label = html! { th scope="col" { (EN.lane) } };
        assert!(super::legend(&EN, &label).0.contains("<dt>lane</dt>"));
    }

    #[test]
    fn a_meaning_stands_once_at_the_first_place_of_its_word() {
        let page = html! {
            a href="/x" data-word="parked" { "set aside" }
            (state("parked")) (state("leased")) (state("leased"))
            th scope="col" { (EN.lane) }
            a.button href="/console/act/skip?id=1" { "Skip" }
            a.button href="/console/act/skip?id=2" { "Skip" }
            span data-word="transient" { "temporary error" }
            p { "</span> set aside" }
        };
        let shown = with_meanings(&page).0;
        let part = |start: &str, api: &str, end: &str| {
            format!("{start} title=\"{}\"{end}", find(api).unwrap().meaning)
        };
        for part in [
            part("<a href=\"/x\"", "parked", " data-word=\"parked\">set aside</a>"),
            part("</span> <abbr tabindex=\"0\"", "leased", ">fetched</abbr></span>"),
            part("<th scope=\"col\"><abbr tabindex=\"0\"", "lane", ">Lane</abbr></th>"),
            part("<span tabindex=\"0\"", "transient", " data-word=\"transient\">temporary error"),
        ] {
            assert_eq!(shown.matches(&part).count(), 1, "{part}: {shown}");
        }
        assert_eq!(shown.matches(" title=").count(), 5, "{shown}");
        assert_eq!(shown.matches(" title=\"It is not sent, and counts as done").count(), 1);
    }

    #[test]
    fn a_meaning_stands_in_an_attribute_as_it_is() {
        for term in &TERMS {
            assert!(!term.meaning.contains(['"', '<', '&']), "{}", term.meaning);
        }
    }
}
