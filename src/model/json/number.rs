//! Numbers of JSON, compared by their digits. A float would make one number of two long ones, and another one of `0.1`.

use std::cmp::Ordering;

/// Digits that a divisor may have: its multiples are found with 128 bits.
const MAX_DIVISOR_DIGITS: usize = 18;
/// A larger exponent counts as this one, a smaller one as its negative: nobody can write so many digits.
const MAX_EXPONENT: i64 = 1 << 60;

/// A number as it is written in JSON, taken apart. Its value is `0.DIGITS` times 10 to the power of `scale`.
///
/// ```
/// use oncebox::model::json::Decimal;
/// let read = |text| Decimal::read(text).unwrap();
/// assert_eq!(read("1.50").compare(read("15e-1")), std::cmp::Ordering::Equal);
/// assert_eq!(read("1e400").compare(read("9".repeat(400).leak())), std::cmp::Ordering::Greater);
/// assert!(Decimal::read("01").is_none() && Decimal::read("+1").is_none());
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Decimal<'t> {
    is_negative: bool,
    /// Digits before the point, without zeros at the start.
    whole: &'t str,
    /// Digits after the point, without zeros at the end, and at the start if `whole` is empty.
    fraction: &'t str,
    scale: i64,
}

impl<'t> Decimal<'t> {
    /// Reads a number; `None` if the text is not a number of JSON.
    pub fn read(text: &'t str) -> Option<Self> {
        let (is_negative, unsigned) =
            text.strip_prefix('-').map_or((false, text), |unsigned| (true, unsigned));
        let (digits, exponent) = match unsigned.split_once(['e', 'E']) {
            Some((digits, exponent)) => (digits, read_exponent(exponent)?),
            None => (unsigned, 0),
        };
        let (whole, fraction) = match digits.split_once('.') {
            Some((whole, fraction)) if is_digits(fraction) => (whole, fraction),
            Some(_no_digits) => return None,
            None => (digits, ""),
        };
        if !is_digits(whole) || (whole.len() > 1 && whole.starts_with('0')) {
            return None;
        }
        Some(Self::of(is_negative, whole, fraction, exponent))
    }

    fn of(is_negative: bool, whole: &'t str, fraction: &'t str, exponent: i64) -> Self {
        let whole = whole.trim_start_matches('0');
        let fraction = fraction.trim_end_matches('0');
        let significant = fraction.trim_start_matches('0');
        if whole.is_empty() && significant.is_empty() {
            return Self { is_negative: false, whole: "", fraction: "", scale: 0 };
        }
        let length = |text: &str| i64::try_from(text.len()).unwrap_or(MAX_EXPONENT);
        if whole.is_empty() {
            let zeros = length(fraction).saturating_sub(length(significant));
            let scale = exponent.saturating_sub(zeros);
            return Self { is_negative, whole, fraction: significant, scale };
        }
        let scale = exponent.saturating_add(length(whole));
        let whole = if fraction.is_empty() { whole.trim_end_matches('0') } else { whole };
        Self { is_negative, whole, fraction, scale }
    }

    /// How many digits it has, without zeros at the start and the end.
    fn len(self) -> usize {
        self.whole.len().saturating_add(self.fraction.len())
    }

    fn digits(self) -> impl Iterator<Item = u8> + use<'t> {
        self.whole.bytes().chain(self.fraction.bytes())
    }

    /// Whether it is 0.
    pub fn is_zero(self) -> bool {
        self.len() == 0
    }

    /// Whether it is more than 0.
    pub fn is_positive(self) -> bool {
        !self.is_negative && !self.is_zero()
    }

    /// Whether it has no fraction: `2.0` and `1e3` have none.
    pub fn is_whole(self) -> bool {
        self.is_zero() || i64::try_from(self.len()).is_ok_and(|digits| digits <= self.scale)
    }

    /// Its value as a count: a whole number from 0 on. A larger one than fits is the largest.
    pub fn count(self) -> Option<u64> {
        if self.is_negative || !self.is_whole() {
            return None;
        }
        let zeros = self.trailing_zeros();
        let padding = std::iter::repeat_n(b'0', usize::try_from(zeros.min(20)).unwrap_or(0));
        let step = |sum: u64, digit: u8| {
            sum.saturating_mul(10).saturating_add(u64::from(digit.saturating_sub(b'0')))
        };
        Some(self.digits().chain(padding).fold(0, step))
    }

    /// The exponent of its last digit.
    fn trailing_zeros(self) -> i64 {
        let digits = i64::try_from(self.len()).unwrap_or(MAX_EXPONENT);
        self.scale.saturating_sub(digits)
    }

    /// Compares two numbers by their values.
    pub fn compare(self, other: Self) -> Ordering {
        match (self.sign(), other.sign()) {
            (1, 1) => self.compare_sizes(other),
            (-1, -1) => other.compare_sizes(self),
            (own, others) => own.cmp(&others),
        }
    }

    fn sign(self) -> i8 {
        match (self.is_zero(), self.is_negative) {
            (true, _) => 0,
            (false, true) => -1,
            (false, false) => 1,
        }
    }

    fn compare_sizes(self, other: Self) -> Ordering {
        self.scale.cmp(&other.scale).then_with(|| self.digits().cmp(other.digits()))
    }

    /// Writes the one form that all equal numbers have; it is hardly longer than the number.
    pub fn write_form(self, into: &mut String) {
        if self.is_zero() {
            into.push('0');
            return;
        }
        if self.is_negative {
            into.push('-');
        }
        into.push_str(self.whole);
        into.push_str(self.fraction);
        into.push('e');
        into.push_str(&self.trailing_zeros().to_string());
    }

    /// Whether its multiples can be found: it is more than 0 and has at most 18 digits.
    pub fn is_divisor(self) -> bool {
        self.is_positive() && self.len() <= MAX_DIVISOR_DIGITS
    }

    /// Whether it is a multiple of a divisor, exactly. False if the divisor is none ([`Decimal::is_divisor`]).
    pub fn is_multiple_of(self, divisor: Self) -> bool {
        if !divisor.is_divisor() {
            return false;
        }
        if self.is_zero() {
            return true;
        }
        // The last digit of neither is 0, so a multiple does not end behind the divisor's last digit.
        let Ok(zeros) =
            u64::try_from(self.trailing_zeros().saturating_sub(divisor.trailing_zeros()))
        else {
            return false;
        };
        let digit = |byte: u8| u128::from(byte.saturating_sub(b'0'));
        let step = |sum: u128, byte: u8| sum.saturating_mul(10).saturating_add(digit(byte));
        let by = divisor.digits().fold(0, step);
        // Less than 10 to the power of 18 each, so no product reaches 2 to the power of 128.
        let rest = |product: u128| product.checked_rem(by).unwrap_or_default();
        let own = self.digits().fold(0, |sum, byte| rest(step(sum, byte)));
        let mut power = rest(1);
        let mut square = rest(10);
        let mut left = zeros;
        while left > 0 {
            if left & 1 == 1 {
                power = rest(power.saturating_mul(square));
            }
            square = rest(square.saturating_mul(square));
            left >>= 1;
        }
        rest(own.saturating_mul(power)) == 0
    }
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())
}

/// The number after `e`; a huge one is cut.
fn read_exponent(text: &str) -> Option<i64> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    if !is_digits(unsigned) {
        return None;
    }
    let size = unsigned.parse().unwrap_or(MAX_EXPONENT).min(MAX_EXPONENT);
    Some(if text.starts_with('-') { size.saturating_neg() } else { size })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Decimal<'_> {
        Decimal::read(text).unwrap_or_else(|| panic!("{text} is a number"))
    }

    fn form(text: &str) -> String {
        let mut form = String::new();
        read(text).write_form(&mut form);
        form
    }

    #[test]
    fn numbers_are_compared_by_their_digits() {
        // Each is less than the next one; those of a line are equal.
        let ascending: [&[&str]; 17] = [
            &["-1e400", "-10e399"],
            &["-18446744073709551617"],
            &["-18446744073709551616"],
            &["-2"],
            &["-1.5", "-15e-1", "-0.15E+1"],
            &["-1e-400"],
            &["0", "-0", "0.0", "-0.000", "0e999999999999999999999", "0E-5"],
            &["1e-400", "0.1e-399"],
            &["0.1", "1e-1", "0.10"],
            &["0.10000000000000001"],
            &["1", "1.0", "10e-1", "0.001e3"],
            &["99.9", "99.90"],
            &["123456789012345678.90"],
            &["123456789012345678.91"],
            &["18446744073709551616", "18446744073709551616.0"],
            &["18446744073709551617"],
            &["1e400", "1E+400"],
        ];
        for (n, own) in ascending.iter().enumerate() {
            for (m, other) in ascending.iter().enumerate() {
                for one in *own {
                    for another in *other {
                        let found = read(one).compare(read(another));
                        assert_eq!(found, n.cmp(&m), "{one} and {another}");
                        assert_eq!(form(one) == form(another), n == m, "{one} and {another}");
                    }
                }
            }
        }
    }

    #[test]
    fn only_numbers_of_json_are_read() {
        for text in [
            "", "-", "+1", "01", "-01", "1.", ".5", "1.e1", "1e", "1e+", "0x1", "1 ", " 1", "NaN",
            "١", "1.2.3", "1e2e3", "1e1.5", "--1", "Infinity",
        ] {
            assert!(Decimal::read(text).is_none(), "{text:?}");
        }
    }

    #[test]
    fn whole_numbers_and_counts() {
        for (text, is_whole, count) in [
            ("0", true, Some(0)),
            ("-0.0", true, Some(0)),
            ("3.0", true, Some(3)),
            ("3e2", true, Some(300)),
            ("0.3e1", true, Some(3)),
            ("-3", true, None),
            ("3.5", false, None),
            ("1e-1", false, None),
            ("9007199254740993", true, Some(9_007_199_254_740_993)),
            ("1e400", true, Some(u64::MAX)),
            ("12345678901234567890.5", false, None),
        ] {
            assert_eq!((read(text).is_whole(), read(text).count()), (is_whole, count), "{text}");
        }
    }

    #[test]
    fn multiples_are_exact() {
        for (value, divisor, is_multiple) in [
            ("0.3", "0.1", true),
            ("19.99", "0.01", true),
            ("19.999", "0.01", false),
            ("5000000000000.05", "0.01", true),
            ("5000000000000.055", "0.01", false),
            ("9007199254740993", "2", false),
            ("9007199254740992", "2", true),
            ("1e400", "7", false),
            ("1e400", "8", true),
            ("7e400", "7", true),
            ("-7.5", "2.5", true),
            ("0", "3", true),
            ("5", "10", false),
            ("1e-7", "1e-8", true),
            ("1e-8", "1e-7", false),
            ("123456789012345678123456789012345678", "123456789012345678", true),
            ("123456789012345678123456789012345679", "123456789012345678", false),
            ("3", "0", false),
            ("3", "-1", false),
        ] {
            let found = read(value).is_multiple_of(read(divisor));
            assert_eq!(found, is_multiple, "{value} of {divisor}");
        }
        assert!(read("0.123456789012345678").is_divisor());
        assert!(!read("1.1234567890123456789").is_divisor());
    }

    proptest! {
        #[test]
        fn it_agrees_with_whole_numbers(a in any::<i64>(), b in 1_i64..1_000_000, digits in 0_u32..4) {
            let small = a % 1_000_000;
            for (own, other) in [(a, b), (small, b), (small * b, b)] {
                // The point is moved, which changes neither order nor multiples.
                let shifted = format!("{own}e-{digits}");
                let by = format!("{other}e-{digits}");
                prop_assert_eq!(read(&shifted).compare(read(&by)), own.cmp(&other));
                prop_assert_eq!(read(&shifted).is_multiple_of(read(&by)), own % other == 0);
            }
        }
    }
}
