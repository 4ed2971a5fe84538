//! Cleans texts that a caller chose, before they are stored.

/// The longest stored text, in characters. Without a limit, any caller could fill the file.
const MAX_TEXT_CHARS: usize = 255;
/// Prefixes of our secrets. A path or header may contain a secret by mistake.
const SECRET_PREFIXES: [&str; 6] =
    ["obx_", "obs_", "obl_", "whsec_", "whsk_", "oncebox-master-key-1:"];

/// The text without control characters and secrets, cut to the limit.
pub(super) fn sanitize(text: &str) -> String {
    let clean = text.chars().filter(|c| !c.is_control()).take(MAX_TEXT_CHARS).collect::<String>();
    without_secrets(&clean)
}

/// The text with each token, signing secret and master key replaced by its prefix and `…`.
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
    fn a_secret_in_a_path_is_not_stored() {
        assert_eq!(sanitize("/v1/tokens/obx_AbC-12_3"), "/v1/tokens/obx_…");
        assert_eq!(sanitize("x whsec_MfKQ9r8/+= y obx_1, obx_2"), "x whsec_… y obx_…, obx_…");
        assert_eq!(sanitize("a\nb\u{1b}[0m"), "ab[0m");
        assert_eq!(sanitize(&"x".repeat(1000)).len(), MAX_TEXT_CHARS);
    }
}
