//! Amazon SNS: RSA over some of the body's fields, with a certificate that the body names.
//!
//! Amazon signs the messages of every customer's topics, so only the topics in the settings are accepted. The time is
//! not compared with ours, because Amazon retries for hours; a repetition is recognised by its signed `MessageId`.
//!
//! Not here: raw message delivery, which is not signed.

use data_encoding::BASE64;

use super::certificate::{RSA_BYTES, check_entered, check_signature};
use super::check::{Incoming, Refused, Verified, bad_body};
use super::naming::Facts;
use super::naming::Locator::Body;
use super::signing::Hash;
use crate::model::pointer::{text_at, unambiguous_text_at};

/// The signed fields in order; each name and each value is on a line of its own.
const NOTIFICATION: [&str; 6] =
    ["Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"];
const CONFIRMATION: [&str; 7] =
    ["Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"];

pub(super) static FACTS: Facts = Facts {
    ids: &[Body(&["MessageId"])],
    types: &[Body(&["Type"])],
    kept: &["x-amz-sns-topic-arn", "x-amz-sns-subscription-arn"],
    ..Facts::new("sns", "Notification")
};

/// Settings of `sns`.
#[derive(
    Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
#[serde(deny_unknown_fields)]
pub struct Sns {
    /// The ARNs of the accepted topics.
    #[schemars(inner(length(min = 8, max = 512)))]
    pub topics: Vec<String>,
    /// Whether subscriptions of these topics are confirmed automatically.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub confirm: bool,
    /// Amazon's certificates, PEM, for machines that cannot fetch them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificates: Option<String>,
}

impl Sns {
    pub(super) fn check(&self) -> Result<(), String> {
        let is_topic = |topic: &String| topic.starts_with("arn:aws") && topic.len() <= 512;
        if (1..=100).contains(&self.topics.len()) && self.topics.iter().all(is_topic) {
            return check_entered(self.certificates.as_deref());
        }
        let why =
            "`topics` must list 1 to 100 ARNs like arn:aws:sns:eu-central-1:123456789012:orders";
        Err(why.to_owned())
    }
}

fn field(incoming: &Incoming<'_>, name: &str) -> Option<String> {
    text_at(incoming.body, &[name])
}

/// The URL of the certificate.
pub(super) fn certificate_url(sns: &Sns, incoming: &Incoming<'_>) -> Result<String, Refused> {
    // Nothing is fetched for a request that would be refused anyway.
    let _signed = parts(sns, incoming)?;
    let url =
        field(incoming, "SigningCertURL").ok_or_else(|| bad_body("it has no SigningCertURL"))?;
    let own = after_host(incoming, &url).is_some_and(|path| {
        let name = path.strip_prefix("SimpleNotificationService-");
        name.and_then(|name| name.strip_suffix(".pem")).is_some_and(|name| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric())
        })
    });
    own.then_some(url).ok_or_else(|| bad_body("its SigningCertURL is not one of Amazon's"))
}

/// The path of a URL on the SNS host of the topic's own region, such as `https://sns.eu-central-1.amazonaws.com/`;
/// `None` for any other host.
fn after_host<'u>(incoming: &Incoming<'_>, url: &'u str) -> Option<&'u str> {
    let topic = field(incoming, "TopicArn")?;
    let region = topic.split(':').nth(3).filter(|region| is_region(region))?;
    let (host, path) = url.strip_prefix("https://")?.split_once('/')?;
    let ending = host.strip_prefix("sns.")?.strip_prefix(region)?;
    matches!(ending, ".amazonaws.com" | ".amazonaws.com.cn").then_some(path)
}

/// Whether a text is a region such as `eu-central-1`.
fn is_region(text: &str) -> bool {
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase());
    let Some((words, number)) = text.rsplit_once('-') else { return false };
    let Some((area, names)) = words.split_once('-') else { return false };
    let numbered = number.len() == 1 && number.bytes().all(|byte| byte.is_ascii_digit());
    numbered && area.len() == 2 && word(area) && names.split('-').all(word)
}

fn check_topic(sns: &Sns, incoming: &Incoming<'_>) -> Result<(), Refused> {
    let topic = field(incoming, "TopicArn").ok_or_else(|| bad_body("it has no TopicArn"))?;
    let known = sns.topics.contains(&topic);
    known.then_some(()).ok_or_else(|| bad_body("its topic is not in the settings"))
}

/// The hash function, the signed text, and the signature.
fn parts(sns: &Sns, incoming: &Incoming<'_>) -> Result<(Hash, String, Vec<u8>), Refused> {
    check_topic(sns, incoming)?;
    let hash = match field(incoming, "SignatureVersion").as_deref() {
        Some("1") => Hash::Sha1,
        Some("2") => Hash::Sha256,
        _ => return Err(bad_body("its SignatureVersion is neither 1 nor 2")),
    };
    let names = match field(incoming, "Type").as_deref() {
        Some("Notification") => &NOTIFICATION[..],
        Some("SubscriptionConfirmation" | "UnsubscribeConfirmation") => &CONFIRMATION[..],
        _ => return Err(bad_body("its Type is unknown")),
    };
    let signature = field(incoming, "Signature")
        .and_then(|text| BASE64.decode(text.as_bytes()).ok())
        .ok_or_else(|| bad_body("it has no Signature in base64"))?;
    if !RSA_BYTES.contains(&signature.len()) {
        return Err(bad_body("its Signature does not have the length of an RSA signature"));
    }
    let mut message = String::new();
    for name in names {
        match unambiguous_text_at(incoming.body, &[name]).map_err(bad_body)? {
            // A line break would move text to the next field unnoticed. The message comes first and may contain some.
            Some(value) if *name != "Message" && value.contains('\n') => {
                return Err(bad_body("a signed field contains a line break"));
            }
            Some(value) => message.extend([name, "\n", &value, "\n"]),
            None if *name == "Subject" => {}
            None => return Err(bad_body("a signed field is missing")),
        }
    }
    Ok((hash, message, signature))
}

pub(super) fn verify(
    sns: &Sns,
    fetched: Option<&[u8]>,
    incoming: &Incoming<'_>,
) -> Result<Verified, Refused> {
    let (hash, message, signature) = parts(sns, incoming)?;
    let entered = sns.certificates.as_deref();
    check_signature(entered, fetched, hash, message.as_bytes(), &signature)?;
    Ok(Verified { secret: 0, signed_at: None })
}

/// The URL that confirms a subscription, if the settings allow calling it.
pub(super) fn confirmation(sns: &Sns, incoming: &Incoming<'_>) -> Option<String> {
    let asked = field(incoming, "Type").is_some_and(|kind| kind == "SubscriptionConfirmation");
    let url = field(incoming, "SubscribeURL").filter(|_| asked && sns.confirm)?;
    let plain = |rest: &&str| {
        rest.starts_with('?') && !rest.contains('#') && rest.bytes().all(|b| b.is_ascii_graphic())
    };
    after_host(incoming, &url).as_ref().is_some_and(plain).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::headers::Headers;

    #[test]
    fn a_certificate_is_on_amazons_host_of_the_topics_region() {
        let topic = "arn:aws:sns:eu-central-1:123456789012:orders";
        let sns = Sns { topics: vec![topic.to_owned()], confirm: true, certificates: None };
        let taken = |url: &str, subscribe: &str| {
            let body = serde_json::json!({ "TopicArn": topic, "SigningCertURL": url,
                "Type": "SubscriptionConfirmation", "SubscribeURL": subscribe, "Message": "",
                "MessageId": "m-1", "Token": "t", "Timestamp": "", "SignatureVersion": "2",
                "Signature": BASE64.encode(&[0; 256]) })
            .to_string();
            let headers = Headers::default();
            let method = "POST";
            let body = body.as_bytes();
            let incoming = Incoming { method, path: "/", url: "", headers: &headers, body };
            (certificate_url(&sns, &incoming).is_ok(), confirmation(&sns, &incoming).is_some())
        };
        let host = "https://sns.eu-central-1.amazonaws.com";
        let good = format!("{host}/SimpleNotificationService-0a.pem");
        assert_eq!(taken(&good, &format!("{host}/?Action=ConfirmSubscription")), (true, true));
        for bad in ["@evil.example/", ":443/", ".evil.example/", "/x/", "/#", "//"] {
            let file = format!("{host}{bad}SimpleNotificationService-0a.pem");
            assert_eq!(taken(&file, &format!("{host}{bad}?Action=x")), (false, false), "{bad}");
        }
        for bad in ["?x", "#x", ".pem/../x.pem"] {
            assert!(!taken(&format!("{good}{bad}"), "").0, "{bad}");
        }
        for other in ["sns.s3-eu-central-1", "sns.us-east-1", "s3.eu-central-1", "sns.s3-x"] {
            let host = format!("https://{other}.amazonaws.com");
            let file = format!("{host}/SimpleNotificationService-0a.pem");
            assert_eq!(taken(&file, &format!("{host}/?Action=x")), (false, false), "{other}");
        }
        assert!(!is_region("s3-eu-1") && !is_region("eu-1") && is_region("us-gov-west-1"));
    }
}
