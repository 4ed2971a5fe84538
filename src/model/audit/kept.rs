//! Texts that a caller chose, as they may be kept.

/// Characters of a text that the caller chose, such as a path: more would let anybody fill the file.
const MAX_TEXT_CHARS: usize = 255;
/// How secrets of ours begin. A path or header that holds one by mistake is kept without it.
const SECRET_PREFIXES: [&str; 4] = ["obx_", "whsec_", "whsk_", "oncebox-master-key-1:"];

/// A text that the caller chose, as it is kept: no control characters, not too long, no secret of ours.
pub(super) fn kept(text: &str) -> String {
    let clean = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect::<String>();
    without_secrets(&clean)
}

/// The text with every token, signing secret and master key in it cut down to how it begins.
pub fn without_secrets(text: &str) -> String {
    let mut text = text.to_owned();
    for prefix in SECRET_PREFIXES {
        let mut parts = text.split(prefix);
        let mut masked = parts.next().unwrap_or_default().to_owned();
        for part in parts {
            let is_secret = |c: char| c.is_ascii_alphanumeric() || "-_+/=".contains(c);
            masked.push_str(prefix);
            masked.push('…');
            masked.push_str(part.trim_start_matches(is_secret));
        }
        text = masked;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_in_a_path_is_not_kept() {
        assert_eq!(kept("/v1/tokens/obx_AbC-12_3"), "/v1/tokens/obx_…");
        assert_eq!(kept("x whsec_MfKQ9r8/+= y obx_1, obx_2"), "x whsec_… y obx_…, obx_…");
        assert_eq!(kept("a\nb\u{1b}[0m"), "ab[0m");
        assert_eq!(kept(&"x".repeat(1000)).len(), MAX_TEXT_CHARS);
    }
}
