//! Finds personal data in a text by its form: e-mail addresses, telephone numbers, card numbers, IBANs.
//!
//! This is a guess: a finding may be something else (one number in ten passes a card's check), and data in another
//! form is not found. Not here: what a rule does with a finding.

use std::ops::Range;

use crate::base::words::words;

words! {
    /// A kind of personal data to find.
    pub enum Detector as "Detector" {
        /// `local@domain.tld`.
        Email = "email",
        /// `+` or `00` and 8 to 15 digits, or ten digits as `(555) 123-4567`.
        Phone = "phone",
        /// 13 to 19 digits, the first from 2 to 6, the last the check digit (Luhn).
        Card = "card",
        /// A country, two check digits and a number whose remainder by 97 is 1 (ISO 13616).
        Iban = "iban",
    }
}

impl Detector {
    /// The spans of such data in a text, in order and not overlapping.
    pub fn find(self, text: &str) -> Vec<Range<usize>> {
        match self {
            Self::Email => emails(text),
            Self::Phone => numbers(text, phone_at),
            Self::Card => numbers(text, card_at),
            Self::Iban => numbers(text, iban_at),
        }
    }

    /// The masked form of a finding: it shows the domain of an address, else the last four characters.
    pub fn mask(self, found: &str) -> String {
        match (self, found.rsplit_once('@')) {
            (Self::Email, Some((_, domain))) => format!("***@{domain}"),
            _ => mask(found),
        }
    }
}

/// The masked form of a text: it shows the last four letters and digits if there are eight or more.
pub fn mask(text: &str) -> String {
    let kept: Vec<char> = text.chars().filter(|c| c.is_alphanumeric()).collect();
    let from = kept.len().saturating_sub(4);
    let last: String = kept.get(from..).unwrap_or_default().iter().collect();
    if kept.len() >= 8 { format!("***{last}") } else { "***".to_owned() }
}

const MAX_LOCAL_BYTES: usize = 64;
const MAX_DOMAIN_BYTES: usize = 253;

fn emails(text: &str) -> Vec<Range<usize>> {
    let mut found: Vec<Range<usize>> = Vec::new();
    for (at, _) in text.match_indices('@') {
        let past = found.last().map_or(0, |before| before.end);
        let (Some(before), Some(after)) = (text.get(past..at), text.get(at + 1..)) else {
            continue;
        };
        let is_local = |c: char| c.is_alphanumeric() || "._%+-'".contains(c);
        let local: usize =
            before.chars().rev().take_while(|c| is_local(*c)).map(char::len_utf8).sum();
        let is_domain = |c: char| c.is_alphanumeric() || c == '.' || c == '-';
        let domain: String =
            after.chars().take(MAX_DOMAIN_BYTES).take_while(|c| is_domain(*c)).collect();
        let domain = domain.trim_end_matches(['.', '-']);
        let last = domain.rsplit_once('.').map(|(name, last)| (name, last.chars().count()));
        let fits = last.is_some_and(|(name, last)| !name.is_empty() && last >= 2);
        if fits && (1..=MAX_LOCAL_BYTES * 4).contains(&local) {
            found.push(at - local..at + 1 + domain.len());
        }
    }
    found
}

/// Tries `form` wherever a word begins.
fn numbers(text: &str, form: fn(&str) -> Option<usize>) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut before = ' ';
    let mut past = 0;
    for (at, c) in text.char_indices() {
        // Nothing begins in the middle of a word or a number.
        let begins = at >= past && !before.is_alphanumeric() && !(before == '+' && c != '+');
        before = c;
        if !begins || !(c.is_ascii_alphanumeric() || c == '+' || c == '(') {
            continue;
        }
        let rest = text.get(at..).unwrap_or_default();
        if let Some(length) = form(rest) {
            past = at + length;
            found.push(at..past);
        }
    }
    found
}

/// The longest run of digits with separators between them: the digits, and where each ends.
fn digits(text: &str, separators: &str, most: usize) -> (Vec<u8>, Vec<usize>) {
    let mut digits = Vec::new();
    let mut ends = Vec::new();
    let mut separated = 0;
    for (at, byte) in text.bytes().enumerate() {
        if byte.is_ascii_digit() {
            if digits.len() == most {
                // Longer than any number to find.
                return (Vec::new(), Vec::new());
            }
            digits.push(byte - b'0');
            ends.push(at + 1);
            separated = 0;
        } else if separators.as_bytes().contains(&byte) && separated < 2 {
            separated += 1;
        } else {
            break;
        }
    }
    (digits, ends)
}

fn ends_there(text: &str, end: usize) -> bool {
    text.get(end..).is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
}

fn card_at(text: &str) -> Option<usize> {
    if !text.starts_with(|c: char| ('2'..='6').contains(&c)) {
        return None;
    }
    let (digits, ends) = digits(text, " -", 40);
    (13..=19).rev().find_map(|count| {
        let end = *ends.get(count - 1)?;
        let number = digits.get(..count)?;
        (ends_there(text, end) && luhn(number)).then_some(end)
    })
}

/// The check of ISO/IEC 7812-1: every second digit from the right is doubled.
fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(n, digit)| match (n % 2 == 1, u32::from(*digit)) {
            (false, digit) => digit,
            (true, digit) if digit > 4 => digit * 2 - 9,
            (true, digit) => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

fn phone_at(text: &str) -> Option<usize> {
    let international = text
        .strip_prefix('+')
        .or_else(|| text.strip_prefix("00").filter(|rest| !rest.starts_with('0')));
    if let Some(rest) = international {
        if !rest.starts_with(|c: char| ('1'..='9').contains(&c)) {
            return None;
        }
        let (digits, ends) = digits(rest, " -./()", 40);
        let end = *ends.last()?;
        let prefix = text.len() - rest.len();
        return ((8..=15).contains(&digits.len()) && ends_there(rest, end)).then_some(prefix + end);
    }
    national(text)
}

/// `(555) 123-4567`, `555-123-4567`, `555.123.4567`: the separators distinguish it from other ten digits.
fn national(text: &str) -> Option<usize> {
    let (open, rest) = match text.strip_prefix('(') {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let (first, rest) = take_digits(rest, 3)?;
    let rest = if open {
        rest.strip_prefix(')').map(|rest| rest.strip_prefix(' ').unwrap_or(rest))?
    } else {
        rest.strip_prefix(['-', '.', ' '])?
    };
    let (_, rest) = take_digits(rest, 3)?;
    let rest = rest.strip_prefix(['-', '.', ' '])?;
    let (_, rest) = take_digits(rest, 4)?;
    let end = text.len() - rest.len();
    let area = first.starts_with(|c: char| ('2'..='9').contains(&c));
    (area && ends_there(text, end)).then_some(end)
}

fn take_digits(text: &str, count: usize) -> Option<(&str, &str)> {
    let (digits, rest) = text.split_at_checked(count)?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then_some((digits, rest))
}

const IBAN_CHARS: std::ops::RangeInclusive<usize> = 15..=34;

fn iban_at(text: &str) -> Option<usize> {
    let begins = text.bytes().zip([true, true, false, false]);
    if !begins
        .into_iter()
        .all(|(b, letter)| if letter { b.is_ascii_alphabetic() } else { b.is_ascii_digit() })
    {
        return None;
    }
    let mut chars: Vec<u8> = Vec::new();
    let mut ends: Vec<usize> = Vec::new();
    let mut spaced = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b if b.is_ascii_alphanumeric() && chars.len() < *IBAN_CHARS.end() => {
                chars.push(b.to_ascii_uppercase());
                ends.push(at + 1);
                spaced = false;
            }
            b' ' | b'-' if !spaced => spaced = true,
            _ => break,
        }
    }
    IBAN_CHARS.rev().find_map(|count| {
        let end = *ends.get(count - 1)?;
        let number = chars.get(..count)?;
        (ends_there(text, end) && leaves_one(number)).then_some(end)
    })
}

/// ISO 7064, MOD 97-10: the first four characters move to the end, letters count from 10.
fn leaves_one(number: &[u8]) -> bool {
    let (head, tail) = number.split_at_checked(4).unwrap_or((number, &[]));
    let rest = tail.iter().chain(head).fold(0_u32, |rest, byte| match byte {
        b'0'..=b'9' => (rest * 10 + u32::from(byte - b'0')) % 97,
        _ => (rest * 100 + u32::from(byte.saturating_sub(b'A')) + 10) % 97,
    });
    rest == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(detector: Detector, text: &str) -> Vec<&str> {
        detector.find(text).into_iter().map(|span| text.get(span).unwrap()).collect()
    }

    #[test]
    fn an_address_is_found_in_a_sentence() {
        let text =
            "Write to <Jane.Doe+x@mail.example.co.uk>, or to jörg@exämple.de. Not @me, a@b, x@y.z.";
        assert_eq!(
            found(Detector::Email, text),
            ["Jane.Doe+x@mail.example.co.uk", "jörg@exämple.de"]
        );
        assert_eq!(found(Detector::Email, "***@example.org"), [""; 0], "a masked one is none");
        assert_eq!(found(Detector::Email, "a@b.de@c.de"), ["a@b.de"]);
    }

    #[test]
    fn a_number_is_found_with_and_without_separators() {
        let text = "+49 (151) 1234-5678 or 0049 30 901820; (555) 123-4567, 555.123.4567.";
        assert_eq!(
            found(Detector::Phone, text),
            ["+49 (151) 1234-5678", "0049 30 901820", "(555) 123-4567", "555.123.4567"]
        );
        for other in
            ["2026-01-31", "4711", "0000123456789", "5551234567", "1.2.3.4", "x+49151123456789012"]
        {
            assert_eq!(found(Detector::Phone, other), [""; 0], "{other}");
        }
    }

    #[test]
    fn a_card_is_found_by_its_check_digit() {
        for card in
            ["4111111111111111", "4111 1111 1111 1111", "5555-5555-5555-4444", "378282246310005"]
        {
            assert_eq!(found(Detector::Card, &format!("card {card}.")), [card]);
        }
        for other in
            ["4111111111111112", "1769860800000", "a4111111111111111", "41111111111111111111111"]
        {
            assert_eq!(found(Detector::Card, other), [""; 0], "{other}");
        }
    }

    #[test]
    fn an_iban_is_found_by_its_remainder() {
        for iban in [
            "DE89370400440532013000",
            "DE89 3704 0044 0532 0130 00",
            "gb29nwbk60161331926819",
            "NO9386011117947",
        ] {
            assert_eq!(found(Detector::Iban, &format!("to {iban} please")), [iban]);
        }
        for other in ["DE88370400440532013000", "AB12", "INVOICE12345678901234"] {
            assert_eq!(found(Detector::Iban, other), [""; 0], "{other}");
        }
    }

    #[test]
    fn no_detector_matches_a_hash_after_0x() {
        // Without `0x`, about one hash in two thousand looks like an IBAN with a correct remainder.
        let account = (0..1000).map(|n| format!("ab12{n:028}")).find(|hash| {
            let found = [hash.clone(), format!("7-{hash}"), format!("hmac:{hash}")];
            found.iter().all(|text| !Detector::Iban.find(text).is_empty())
        });
        let digits = "4012888888881881".to_owned();
        for hash in [account.unwrap(), digits.repeat(2), format!("00{digits}"), digits] {
            for key in [format!("7-0x{hash}"), format!("555-hmac:0x{hash}-7")] {
                for detector in [Detector::Email, Detector::Phone, Detector::Card, Detector::Iban] {
                    assert_eq!(found(detector, &key), [""; 0], "{key}");
                }
            }
        }
    }

    #[test]
    fn a_mask_leaves_the_domain_or_the_last_four() {
        assert_eq!(Detector::Email.mask("jane@example.org"), "***@example.org");
        assert_eq!(Detector::Card.mask("4111 1111 1111 1111"), "***1111");
        assert_eq!(mask("short"), "***");
        assert_eq!(mask("Müllerstraße 12"), "***ße12");
    }
}
