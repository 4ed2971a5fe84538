//! Which subscriptions of a tenant can want an event of a type, found without asking each of them.
//!
//! The index only leaves out: who is found is asked as before.

use std::collections::HashMap;

use crate::model::pattern::{Patterns, Reach};

/// The places of subscriptions in the list of their tenant, by what their patterns can match.
#[derive(Debug, Default)]
pub(super) struct RouteIndex {
    by_type: HashMap<String, Vec<usize>>,
    by_first_segment: HashMap<String, Vec<usize>>,
    /// Those with a pattern that begins with a star.
    of_any_type: Vec<usize>,
}

impl RouteIndex {
    /// The index of subscriptions with these patterns, in the order of the list.
    pub(super) fn of<'p, L: IntoIterator<Item = &'p Patterns>>(list: L) -> Self {
        let mut index = Self::default();
        for (place, patterns) in list.into_iter().enumerate() {
            for reach in patterns.reaches() {
                index.places_mut(reach).push(place);
            }
        }
        index
    }

    fn places_mut(&mut self, reach: Reach<'_>) -> &mut Vec<usize> {
        match reach {
            Reach::Type(event_type) => self.by_type.entry(event_type).or_default(),
            Reach::FirstSegment(segment) => {
                self.by_first_segment.entry(segment.to_owned()).or_default()
            }
            Reach::AnyType => &mut self.of_any_type,
        }
    }

    /// The places of subscriptions that can want an event of this type, in their order, each once.
    pub(super) fn places(&self, event_type: &str) -> Vec<usize> {
        let first_segment = event_type.split('.').next().unwrap_or_default();
        let of_type = self.by_type.get(event_type).into_iter().flatten();
        let of_segment = self.by_first_segment.get(first_segment).into_iter().flatten();
        let mut places: Vec<usize> =
            of_type.chain(of_segment).chain(&self.of_any_type).copied().collect();
        places.sort_unstable();
        places.dedup();
        places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_wants_a_type_is_found_and_most_others_are_not() {
        let lists: [&[&str]; 9] = [
            &["invoice.paid"],
            &["invoice.*"],
            &["*"],
            &["invoice.*.line"],
            &["*.paid"],
            &["order.created", "invoice.paid", "invoice.*"],
            &[],
            &["invoice"],
            &["invoices.paid"],
        ];
        let patterns: Vec<Patterns> =
            lists.iter().map(|texts| Patterns::parse(texts).unwrap()).collect();
        let index = RouteIndex::of(&patterns);
        let types = [
            "invoice.paid",
            "invoice.a.line",
            "invoice",
            "order.created",
            "order.paid",
            "invoices.paid",
            "a",
            "",
            ".",
            "invoice.",
            "INVOICE.paid",
        ];
        for event_type in types {
            let places = index.places(event_type);
            for (place, patterns) in patterns.iter().enumerate() {
                let is_found = places.contains(&place);
                assert!(is_found || !patterns.matches(event_type), "{event_type}: {patterns:?}");
            }
        }
        assert_eq!(index.places("invoice.paid"), [0, 1, 2, 3, 4, 5]);
        assert_eq!(index.places("invoice"), [1, 2, 3, 4, 5, 7]);
        assert_eq!(index.places("order.created"), [2, 4, 5]);
        assert_eq!(index.places("parcel.sent"), [2, 4]);
    }
}
