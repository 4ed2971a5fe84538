//! Random and mutated input for everything in the domain that reads what strangers wrote.
//!
//! Not here: HTTP itself. It runs for `ONCEBOX_FUZZ_SECONDS` (2 unless told) over all targets together
//! and prints its seed; `ONCEBOX_FUZZ_SEED` runs the same input again.

use std::time::{Duration, Instant, SystemTime};

use oncebox::base::clock::Timestamp;
use oncebox::base::headers::Headers;
use oncebox::model::address::AddressPolicy;
use oncebox::model::pattern::Pattern;
use oncebox::model::pointer::Pointer;
use oncebox::model::target_url::TargetUrl;
use oncebox::signatures::kinds;
use oncebox::signatures::sample::{Subject, sample};
use oncebox::signatures::signing::{Hash, SigningSecret, mac};
use oncebox::signatures::template::Template;
use oncebox::signatures::{Identity, Incoming, Refused, Scheme};

/// A generator of numbers that a seed repeats (xorshift64*).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() >> 33).unwrap() % end.max(1)
    }

    fn pick<'a>(&mut self, from: &[&'a str]) -> &'a str {
        from[self.below(from.len())]
    }

    /// One to three changes: a byte flipped, taken out, doubled, replaced, or a piece of the dictionary
    /// put in.
    fn mutate(&mut self, input: &[u8], dictionary: &[&str]) -> Vec<u8> {
        let mut bytes = input.to_vec();
        for _ in 0..=self.below(3) {
            let at = self.below(bytes.len() + 1);
            match self.below(6) {
                0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
                1 if at < bytes.len() => drop(bytes.remove(at)),
                2 if at < bytes.len() => bytes.insert(at, bytes[at]),
                3 if at < bytes.len() => bytes[at] = self.next().to_le_bytes()[7],
                4 => bytes.truncate(at),
                _ => {
                    let piece = self.pick(dictionary).bytes();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }

    fn text(&mut self, input: &str, dictionary: &[&str]) -> String {
        String::from_utf8_lossy(&self.mutate(input.as_bytes(), dictionary)).into_owned()
    }
}

/// Runs one target over and over until its share of the time is used up.
#[expect(clippy::print_stdout, reason = "the seed is what repeats a failure")]
fn run(name: &str, mut target: impl FnMut(&mut Chance)) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seconds = number("ONCEBOX_FUZZ_SECONDS").unwrap_or(2);
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let fresh = u64::from(since.subsec_nanos()) ^ (since.as_secs() << 30);
    let seed = number("ONCEBOX_FUZZ_SEED").unwrap_or(fresh) | 1;
    println!("{name}: ONCEBOX_FUZZ_SEED={seed}");
    let share = Duration::from_millis(seconds * 1000 / 7);
    let (mut chance, started, mut rounds) = (Chance(seed), Instant::now(), 0_u64);
    while rounds < 100 || started.elapsed() < share {
        target(&mut chance);
        rounds += 1;
    }
    println!("{name}: {rounds} rounds");
}

const BODY: &str = r#"{"id":"evt_1","type":"invoice.paid","data":{"n":[1,2.5,true,null]}}"#;
const NOW: i64 = 1_700_000_000;

/// A scheme with a secret, headers that are right, and what the scheme signs of a request.
struct Sample {
    scheme: Scheme,
    secret: String,
    headers: Vec<(&'static str, String)>,
    /// The signed bytes, as an independent reading of the headers gives them.
    signed: fn(&Headers, &[u8]) -> Vec<u8>,
}

fn joined(headers: &Headers, names: &[&str], body: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for name in names {
        bytes.extend_from_slice(headers.get(name).unwrap_or_default().as_bytes());
        bytes.push(b'.');
    }
    bytes.extend_from_slice(body);
    bytes
}

fn samples() -> Vec<Sample> {
    let hex = |parts: &[&[u8]], key: &str| {
        data_encoding::HEXLOWER.encode(&mac(Hash::Sha256, key.as_bytes(), parts))
    };
    let (body, key) = (BODY.as_bytes(), "0123456789abcdef0123");
    let standard = SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let signature = standard.sign("msg_1", Timestamp::from_secs(NOW), body);
    let timed = format!("{NOW}.{BODY}");
    let generic = r#"{"kind":"generic","check":{"hmac":{"signed":"{id}.{ts}.{body}","header":"x-sig",
        "prefix":"v0=","separator":",","timestamp":{"header":"x-ts"}}},"event_id":{"header":"x-id"}}"#;
    let generic_signed = format!("id-1.{NOW}.{BODY}");
    vec![
        Sample {
            scheme: Scheme::Standard,
            secret: standard.to_text().to_string(),
            headers: vec![
                ("webhook-id", "msg_1".to_owned()),
                ("webhook-timestamp", NOW.to_string()),
                ("webhook-signature", signature),
            ],
            signed: |headers, body| joined(headers, &["webhook-id", "webhook-timestamp"], body),
        },
        Sample {
            scheme: Scheme::of("stripe").unwrap(),
            secret: key.to_owned(),
            headers: vec![(
                "stripe-signature",
                format!("t={NOW},v1={}", hex(&[timed.as_bytes()], key)),
            )],
            signed: |headers, body| {
                let header = headers.get("stripe-signature").unwrap_or_default();
                let time = header.split(',').find_map(|entry| entry.trim().strip_prefix("t="));
                [time.unwrap_or_default().as_bytes(), b".", body].concat()
            },
        },
        Sample {
            scheme: Scheme::of("github").unwrap(),
            secret: key.to_owned(),
            headers: vec![("x-hub-signature-256", format!("sha256={}", hex(&[body], key)))],
            signed: |_, body| body.to_vec(),
        },
        Sample {
            scheme: Scheme::of("shopify").unwrap(),
            secret: key.to_owned(),
            headers: vec![(
                "x-shopify-hmac-sha256",
                data_encoding::BASE64.encode(&mac(Hash::Sha256, key.as_bytes(), &[body])),
            )],
            signed: |_, body| body.to_vec(),
        },
        Sample {
            scheme: serde_json::from_str(generic).unwrap(),
            secret: key.to_owned(),
            headers: vec![
                ("x-id", "id-1".to_owned()),
                ("x-ts", NOW.to_string()),
                ("x-sig", format!("v0={}", hex(&[generic_signed.as_bytes()], key))),
            ],
            signed: |headers, body| joined(headers, &["x-id", "x-ts"], body),
        },
    ]
}

#[test]
fn a_mutated_request_verifies_only_if_what_is_signed_stayed_the_same() {
    let dictionary =
        ["v1,", "v1=", "t=", ",", " ", "=", ".", "sha256=", "\n", "\u{0}", "{", "17", "v0="];
    let samples = samples();
    let mut right = 0_u64;
    run("signatures", |chance| {
        let sample = &samples[chance.below(samples.len())];
        let mut original = Headers::default();
        let mut headers = Headers::default();
        let changed = chance.below(sample.headers.len() + 2);
        for (index, (name, value)) in sample.headers.iter().enumerate() {
            original.push(name, value.as_bytes());
            if index == changed {
                headers.push(name, &chance.mutate(value.as_bytes(), &dictionary));
            } else {
                headers.push(name, value.as_bytes());
            }
        }
        let body = if changed == sample.headers.len() {
            chance.mutate(BODY.as_bytes(), &dictionary)
        } else {
            BODY.as_bytes().to_vec()
        };
        let incoming = Incoming {
            method: "POST",
            path: "/",
            url: "https://e/",
            headers: &headers,
            body: &body,
        };
        let (now, tolerance) = (Timestamp::from_secs(NOW), Duration::from_mins(5));
        let verified = sample.scheme.verify(&[&sample.secret], &incoming, now, tolerance);
        if matches!(verified, Ok(_) | Err(Refused::Stale { .. })) {
            let signed = (sample.signed)(&headers, &body);
            assert_eq!(signed, (sample.signed)(&original, BODY.as_bytes()), "{headers:?}");
            right += 1;
        }
        let identity = sample.scheme.identify(&incoming);
        for text in [&identity.event_id, &identity.event_type] {
            assert!(!text.is_empty() && !text.chars().any(char::is_control), "{text:?}");
        }
        assert!(identity.event_id.chars().count() <= 500 && identity.event_type.len() <= 128);
    });
    assert!(right > 0, "the untouched requests must verify");
}

/// Those that need settings, with settings.
const SET: [&str; 4] = [
    r#"{"kind":"chargebee","user":"erp"}"#,
    r#"{"kind":"paypal","webhook_id":"4JH86294D6297924G"}"#,
    r#"{"kind":"sns","topics":["arn:aws:sns:eu-central-1:1:orders"]}"#,
    r#"{"kind":"generic","check":{"token":{"header":"x-token"}},"items":"/rows","event_id":{"pointer":"/id"}}"#,
];

#[test]
fn no_request_breaks_a_scheme_and_a_changed_body_is_refused() {
    let dictionary = [
        "{",
        "}",
        "[",
        "]",
        ",",
        "\"",
        ":",
        "&",
        "=",
        "%",
        "+",
        "\\u0000",
        "\"id\":",
        "null",
        "v1,",
        "v1=",
        "notificationItems",
        "clientState",
        "signature",
        "[[[[[[[[",
        "\u{0}",
    ];
    // What is signed there is not the body's bytes: fields, a form's values, or nothing at all.
    let loose = ["gitlab", "chargebee", "twilio", "mailgun", "adyen", "dynamics"];
    let secret = |kind: &str| match kind {
        "standard" => "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "stripe" => "whsec_0123456789abcdef",
        _ => "0123456789abcdef0123456789abcdef",
    };
    let read = |text: &&str| serde_json::from_str::<Scheme>(text).unwrap();
    let mut schemes: Vec<Scheme> = kinds().filter_map(Scheme::of).collect();
    schemes.extend(SET.iter().map(read));
    let (now, tolerance) = (Timestamp::from_secs(NOW), Duration::from_mins(5));
    let url = "https://edge.example/in/x?a=1";
    run("schemes", |chance| {
        let scheme = &schemes[chance.below(schemes.len())];
        let secret = secret(scheme.kind());
        let subject = Subject { id: "id-1", event_type: "thing.changed", at: now, url };
        let made = sample(scheme, secret, subject).ok();
        let headers_made = made.as_ref().map_or(&[][..], |made| made.headers.as_slice());
        let original = made.as_ref().map_or(BODY.as_bytes(), |made| &made.body);
        let (mut headers, changed) = (Headers::default(), chance.below(headers_made.len() + 1));
        for (index, (name, value)) in headers_made.iter().enumerate() {
            let value = value.as_bytes();
            let mutated = index == changed;
            headers.push(
                name,
                &if mutated { chance.mutate(value, &dictionary) } else { value.to_vec() },
            );
        }
        let body = if changed == headers_made.len() {
            chance.mutate(original, &dictionary)
        } else {
            original.to_vec()
        };
        let incoming =
            Incoming { method: "POST", path: "/in/x?a=1", url, headers: &headers, body: &body };
        let verified = scheme.verify(&[secret], &incoming, now, tolerance);
        let covers = !loose.contains(&scheme.kind()) && made.is_some();
        assert!(!covers || body == original || verified.is_err(), "{scheme:?} {headers:?}");
        let _answers = (scheme.greeting(&incoming), scheme.challenge(&incoming, secret.as_bytes()));
        let _reads = (scheme.nonce(&incoming), scheme.confirmation(&incoming));
        let _url = scheme.certificate_url(&incoming);
        assert!(scheme.kept(&headers).iter().all(|(_, value)| !value.contains(secret)));
        for item in scheme.events(&incoming).map(|events| events.items).unwrap_or_default() {
            let Identity { event_id, event_type } = item.identity;
            assert!((1..=500).contains(&event_id.chars().count()) && event_type.len() <= 128);
            assert!(!event_id.chars().chain(event_type.chars()).any(char::is_control));
        }
    });
}

#[test]
fn a_template_that_is_taken_prints_as_itself() {
    let dictionary =
        ["{", "}", "{{", "}}", "{body}", "{ts}", "{header:X-A}", "{header:", "{x}", "."];
    run("templates", |chance| {
        let text = chance.text("v0:{ts}:{{{method}}}{header:X-Nonce}{body}", &dictionary);
        if let Ok(template) = Template::parse(&text) {
            assert_eq!(template.to_string(), text);
            assert!(text.contains("{body}"));
        }
        let settings =
            format!(r#"{{"kind":"generic","check":{{"token":{{"header":"X"}}}},"x":{text}}}"#);
        assert!(serde_json::from_str::<Scheme>(&settings).is_err());
    });
}

/// Whether `inet_aton`, to which the system's resolver falls back, reads an address here: one to four
/// numbers, each decimal, octal or hex.
fn system_reads_an_address(host: &str) -> bool {
    let number = |part: &str| match part.strip_prefix("0x") {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()),
    };
    host.split('.').count() <= 4 && host.split('.').all(number)
}

#[test]
fn a_url_that_is_taken_means_to_the_client_what_it_means_to_us() {
    let dictionary = [
        "@",
        ":",
        "//",
        "#",
        "?",
        "[",
        "]",
        "%",
        "%2e",
        "..",
        "/../",
        "{id}",
        "{",
        "}",
        "0x7f",
        "0177",
        "2130706433",
        "::1",
        "::ffff:127.0.0.1",
        "localhost",
        ".",
        "\\",
        "\t",
        "ü",
        ":22",
        "%00",
        "127.1",
    ];
    let seeds = [
        "https://erp.example:8443/orders/{aggregate_id}?t={event_type}",
        "http://[::ffff:10.0.0.1]:80/",
        "http://127.0.0.1/a/b",
        "http://user@host/",
        "http://0x7f.1/",
    ];
    let policy = AddressPolicy::default();
    run("urls", |chance| {
        let seed = chance.pick(&seeds);
        let text = chance.text(seed, &dictionary);
        let Ok(target) = TargetUrl::parse(&text) else { return };
        assert_eq!(TargetUrl::parse(target.as_str()).unwrap(), target, "{text}");
        let value = chance.text("a/../b", &dictionary);
        let Ok(url) = target.fill(|_| Some(&value)) else { return };
        let uri: http::Uri = url.parse().unwrap();
        let host = uri.host().unwrap().trim_matches(['[', ']']);
        assert_eq!(host, target.host(), "{url}");
        assert_eq!(uri.authority().unwrap().as_str(), target.authority(), "{url}");
        assert!(url.is_ascii() && !url.contains(['{', '}', ' ', '\\', '#']), "{url}");
        assert!(!uri.authority().unwrap().as_str().contains('@'), "{url}");
        assert!(!uri.path().split('/').any(|segment| matches!(segment, "." | "..")), "{url}");
        if target.literal_ip().is_none() {
            assert!(!system_reads_an_address(host), "{url}");
        } else {
            assert_eq!(target.check(&policy), policy.check(host.parse().unwrap()));
        }
    });
}

#[test]
fn a_pattern_that_is_taken_prints_as_itself_and_matches_as_a_slow_reading_does() {
    let dictionary = ["*", ".", ".*", "*.", "a", "invoice", "-", "/"];
    run("patterns", |chance| {
        let seed = chance.pick(&["invoice.*", "a.*.c", "*", "a.b.c"]);
        let text = chance.text(seed, &dictionary);
        let Ok(pattern) = Pattern::parse(&text) else { return };
        assert_eq!(pattern.to_string(), text);
        let event_type = chance.text(&text.replace('*', "x"), &dictionary);
        let (wanted, have): (Vec<_>, Vec<_>) =
            (text.split('.').collect(), event_type.split('.').collect());
        let open = wanted.last() == Some(&"*");
        let lengths = have.len() == wanted.len() || open && have.len() > wanted.len();
        let slow =
            lengths && wanted.iter().zip(&have).all(|(want, here)| *want == "*" || want == here);
        assert_eq!(pattern.matches(&event_type), slow, "{text} on {event_type}");
    });
}

#[test]
fn a_pointer_finds_what_a_whole_reading_of_the_body_finds() {
    let dictionary =
        ["{", "}", "[", "]", ",", "\"", "\\", "\\u00", "null", "1e9", "\"id\":", "\u{0}"];
    run("pointers", |chance| {
        let body = chance.mutate(BODY.as_bytes(), &dictionary);
        for text in ["/id", "/data/n/0", "/data/n/1", "/data", "/type"] {
            let found = Pointer::parse(text).unwrap().text_in(&body);
            let whole = serde_json::from_slice::<serde_json::Value>(&body).ok();
            let Some(whole) = whole else { continue };
            let wanted = match whole.pointer(text) {
                Some(serde_json::Value::String(text)) => Some(text.clone()),
                Some(serde_json::Value::Number(number)) => {
                    assert_eq!(found.as_ref().unwrap().parse::<f64>().ok(), number.as_f64());
                    continue;
                }
                _ => None,
            };
            assert_eq!(found, wanted, "{text} in {}", String::from_utf8_lossy(&body));
        }
    });
}

#[test]
fn no_setting_breaks_the_reading_of_schemes() {
    let seed = r#"{"kind":"generic","check":{"hmac":{"signed":"{ts}{body}","header":"X","separator":",",
        "timestamp":{"header":"T","unit":"ms"}}},"event_id":{"pointer":"/id"}}"#;
    let dictionary =
        ["\"", "{", "}", ":", ",", "hmac", "token", "basic", "\"x\":1", "null", "header"];
    run("settings", |chance| {
        let text = chance.text(seed, &dictionary);
        if let Ok(scheme) = serde_json::from_str::<Scheme>(&text) {
            let stored = serde_json::to_string(&scheme).unwrap();
            assert_eq!(serde_json::from_str::<Scheme>(&stored).unwrap(), scheme);
        }
    });
}
