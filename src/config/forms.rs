//! Forms of values: how a value is parsed, shown and described.
//!
//! Only the form has the bounds of a value: the parser, the JSON Schema and the text of the default file use them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::DeValue;

use crate::base::clock::span;
use crate::model::delivery::Schedule;
use crate::model::forward_proxy::{ForwardProxy, HostPattern};
use crate::model::name::Name;
use crate::model::target_url::is_named_like_a_secret;

/// Units of sizes, largest first.
const UNITS: [(&str, u64); 6] = [
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("kB", 1_000),
];

/// A value as it was given: in a file, or as the text of a variable or flag.
#[derive(Clone, Copy, Debug)]
pub enum RawSetting<'a> {
    /// From a file.
    Toml(&'a DeValue<'a>),
    /// From a variable of the environment or a flag.
    Text(&'a str),
}

impl<'a> RawSetting<'a> {
    pub(super) fn text(self) -> Result<&'a str, String> {
        match self {
            Self::Text(text) => Ok(text),
            Self::Toml(value) => value
                .as_str()
                .ok_or_else(|| format!("is {}; it must be a string in quotes", kind(value))),
        }
    }

    fn number(self) -> Result<u64, String> {
        let wrong = |what: &dyn Display| format!("is {what}; it must be a whole number");
        match self {
            Self::Text(text) => text.trim().parse().map_err(|_why| wrong(&format!("{text:?}"))),
            Self::Toml(value) => {
                let number = value.as_integer().ok_or_else(|| wrong(&kind(value)))?;
                u64::from_str_radix(number.as_str(), number.radix()).map_err(|_why| wrong(number))
            }
        }
    }

    /// The words of a list; in a variable they are separated by commas.
    pub(super) fn list(self) -> Result<Vec<String>, String> {
        match self {
            Self::Text(text) => {
                let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
                Ok(words.map(str::to_owned).collect())
            }
            Self::Toml(value) => {
                let wrong = || format!("is {}; it must be a list like [\"…\"]", kind(value));
                let list = value.as_array().ok_or_else(wrong)?;
                list.iter()
                    .map(|item| RawSetting::Toml(item.as_ref()).text().map(str::to_owned))
                    .collect()
            }
        }
    }
}

/// Names the type of a value, for an error.
fn kind(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a string",
        DeValue::Integer(_) => "a number",
        DeValue::Float(_) => "a decimal number",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The form of a value.
pub(super) trait Form {
    /// The type of the value.
    type Output;

    /// Parses it and checks its bounds.
    fn read(&self, given: RawSetting<'_>) -> Result<Self::Output, String>;

    /// The value as it is written in a file. JSON and TOML write these values alike.
    fn shown(&self, value: &Self::Output) -> Value;

    /// What may be shown to people other than the one at the machine; null if nothing.
    fn public(&self, value: &Self::Output) -> Value {
        self.shown(value)
    }

    /// The allowed values as JSON Schema.
    fn schema(&self) -> Value;

    /// The allowed values as text.
    fn says(&self) -> String;
}

/// The most header fields of a publish that are kept.
const MAX_KEPT_FIELDS: usize = 16;

/// Defines a form: its type, how it is parsed and shown, its JSON Schema, and its description.
macro_rules! form {
    (
        $(#[$about:meta])*
        $form:ident$(($least:ident, $most:ident: $bound:ty))? = $held:ty;
        read $read:expr, shown $shown:expr,
        $(public $public:expr,)? schema $schema:expr, says $says:expr
    ) => {
        $(#[$about])*
        pub(super) struct $form$((pub(super) $bound, pub(super) $bound))?;

        impl Form for $form {
            type Output = $held;

            fn read(&self, given: RawSetting<'_>) -> Result<$held, String> {
                $(let Self($least, $most) = self;)?
                let read: fn(RawSetting<'_> $(, &$bound, &$bound)?) -> Result<$held, String> = $read;
                read(given $(, $least, $most)?)
            }

            fn shown(&self, held: &$held) -> Value {
                let shown: fn(&$held) -> Value = $shown;
                shown(held)
            }

            $(fn public(&self, held: &$held) -> Value {
                let public: fn(&$held) -> Value = $public;
                public(held)
            })?

            fn schema(&self) -> Value {
                $(let Self($least, $most) = self; let _bounds = ($least, $most);)?
                $schema
            }

            fn says(&self) -> String {
                $(let Self($least, $most) = self;)?
                $says
            }
        }
    };
}

form! {
    /// `127.0.0.1:8710`
    Address = SocketAddr;
    read |given| {
        let text = given.text()?;
        text.parse().map_err(|_why| {
            format!("is {text:?}; it must be an address and a port, like 127.0.0.1:8710")
        })
    },
    shown |held| held.to_string().into(),
    schema json!({ "type": "string", "examples": ["127.0.0.1:8710", "[::1]:8710"] }),
    says "an address and a port".to_owned()
}

form! {
    /// A file or directory.
    Path = PathBuf;
    read |given| Text.read(given).map(PathBuf::from),
    shown |held| held.display().to_string().into(),
    schema json!({ "type": "string", "minLength": 1 }),
    says "a path".to_owned()
}

form! {
    /// A file with a secret.
    SecretPath = PathBuf;
    read |given| Path.read(given),
    shown |held| Path.shown(held),
    public |_held| Value::Null,
    schema Path.schema(),
    says Path.says()
}

/// A table of lists, by name.
fn lists(given: &RawSetting<'_>, like: &str) -> Result<BTreeMap<String, Vec<String>>, String> {
    let wrong = || format!("must be a table like {like}");
    match given {
        RawSetting::Text(text) => serde_json::from_str(text).map_err(|_why| wrong()),
        RawSetting::Toml(value) => {
            let table = value.as_table().ok_or_else(wrong)?;
            let list = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                Ok((name.get_ref().to_string(), RawSetting::Toml(value.get_ref()).list()?))
            };
            table.iter().map(list).collect()
        }
    }
}

form! {
    /// Programs with their arguments, by name.
    Commands = BTreeMap<String, Vec<String>>;
    read |given| {
        let commands = lists(&given, "{ vault = [\"/usr/local/bin/new-secret\", \"erp\"] }")?;
        let is_path = |argv: &Vec<String>| argv.first().is_some_and(|program| program.starts_with('/'));
        match commands.iter().find(|(_, argv)| !is_path(argv)) {
            Some((name, _)) => Err(format!("has {name:?}, which does not begin with the path of a program, like /usr/local/bin/new-secret")),
            None => Ok(commands),
        }
    },
    shown |held| json!(held),
    // Arguments may be secrets.
    public |held| held.iter().map(|(name, argv)| (name.clone(), json!(argv.get(..1)))).collect::<Map<_, _>>().into(),
    schema json!({ "type": "object",
        "additionalProperties": { "type": "array", "items": { "type": "string" }, "minItems": 1 } }),
    says "a table of programs with their arguments".to_owned()
}

form! {
    /// A program with its arguments.
    Argv = Vec<String>;
    read |given| {
        let argv = given.list()?;
        match argv.first() {
            Some(program) if !program.starts_with('/') => {
                Err(format!("has {program:?}, which is not the path of a program, like /usr/bin/systemd-creds"))
            }
            _ => Ok(argv),
        }
    },
    shown |held| json!(held),
    // Arguments may be secrets.
    public |held| json!(held.get(..1)),
    schema json!({ "type": "array", "items": { "type": "string" } }),
    says "a program and its arguments".to_owned()
}

form! {
    /// Brokers of clusters, by name.
    Clusters = BTreeMap<String, Vec<String>>;
    read |given| {
        let clusters = lists(&given, "{ centre = [\"kafka-1.example.com:9093\"] }")?;
        let is_broker = |broker: &String| {
            let parts = broker.rsplit_once(':').map(|(host, port)| (host.is_empty(), port.parse::<u16>()));
            matches!(parts, Some((false, Ok(1..))))
        };
        for (name, brokers) in &clusters {
            Name::parse(name).map_err(|error| format!("has {name:?}: {error}"))?;
            if let Some(wrong) = brokers.iter().find(|broker| !is_broker(broker)) {
                return Err(format!("has {wrong:?}; a broker is a host and a port, like kafka-1.example.com:9093"));
            }
            if brokers.is_empty() {
                return Err(format!("has {name:?} without a broker"));
            }
        }
        Ok(clusters)
    },
    shown |held| json!(held),
    schema json!({ "type": "object",
        "additionalProperties": { "type": "array", "items": { "type": "string" }, "minItems": 1 } }),
    says "a table of clusters with their brokers".to_owned()
}

form! {
    /// `shop-17`
    BoxName = String;
    read |given| Name::parse(given.text()?).map(|name| name.to_string()).map_err(|error| error.to_string()),
    shown |held| held.as_str().into(),
    schema json!({ "type": "string", "minLength": 1 }),
    says "a name".to_owned()
}

form! {
    /// Any text that is not empty.
    Text = String;
    read |given| match given.text()? {
        "" => Err("is empty; leave it out instead".to_owned()),
        text => Ok(text.to_owned()),
    },
    shown |held| held.as_str().into(),
    schema json!({ "type": "string", "minLength": 1 }),
    says "a text".to_owned()
}

form! {
    /// `http://…` or `https://…`, without a path that ends in `/`.
    Url = String;
    read |given| {
        let text = given.text()?;
        let url: Option<http::Uri> = text.parse().ok();
        let good = |url: &http::Uri| {
            matches!(url.scheme_str(), Some("http" | "https"))
                && url.host().is_some_and(|host| !host.is_empty())
                && url.query().is_none()
        };
        if url.as_ref().is_some_and(good) {
            return Ok(text.trim_end_matches('/').to_owned());
        }
        Err(format!("is {text:?}; it must be a URL like https://hooks.example.com"))
    },
    shown |held| held.as_str().into(),
    schema json!({ "type": "string", "pattern": "^https?://" }),
    says "a URL".to_owned()
}

/// The host and the port of a forward proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProxyUrl {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
}

form! {
    /// `http://proxy.example.com:3128`
    ProxyAt = ProxyUrl;
    read |given| {
        ForwardProxy::parse_url(given.text()?).map(|(host, port)| ProxyUrl { host, port })
    },
    shown |held| {
        let ProxyUrl { host, port } = held.clone();
        format!("http://{}", ForwardProxy { host, port, ..ForwardProxy::default() }).into()
    },
    schema json!({ "type": "string", "pattern": "^http://" }),
    says "the URL of a proxy".to_owned()
}

form! {
    /// `["example.com", "10.0.0.0/8", "*"]`
    Hosts = Vec<HostPattern>;
    read |given| {
        let host = |word: &String| {
            let wrong = || format!("has {word:?}; each must be a name like example.com, a range like 10.0.0.0/8, or *");
            HostPattern::parse(word).ok_or_else(wrong)
        };
        given.list()?.iter().map(host).collect()
    },
    shown |held| json!(held.iter().map(ToString::to_string).collect::<Vec<_>>()),
    schema json!({ "type": "array", "items": { "type": "string", "examples": ["example.com", "10.0.0.0/8"] } }),
    says "a list of hosts".to_owned()
}

form! {
    /// `true` or `false`
    Flag = bool;
    read flag,
    shown |held| (*held).into(),
    schema json!({ "type": "boolean" }),
    says "true or false".to_owned()
}

form! {
    /// `["10.0.0.0/8", "192.0.2.7"]`
    Networks = Vec<IpNet>;
    read |given| given.list()?.iter().map(|word| network(word)).collect(),
    shown |held| held.iter().map(ToString::to_string).collect(),
    schema json!({ "type": "array", "items": { "type": "string", "examples": ["10.0.0.0/8"] } }),
    says "a list of address ranges".to_owned()
}

form! {
    /// `["9.9.9.9:53"]`
    Addresses = Vec<SocketAddr>;
    read |given| {
        let address = |text: &String| {
            text.parse().map_err(|_why| {
                format!("has {text:?}; each must be an address and a port, like 9.9.9.9:53")
            })
        };
        given.list()?.iter().map(address).collect()
    },
    shown |held| held.iter().map(ToString::to_string).collect(),
    schema json!({ "type": "array", "items": { "type": "string", "examples": ["9.9.9.9:53"] } }),
    says "a list of addresses with ports".to_owned()
}

form! {
    /// `["example.com"]`
    Domains = Vec<String>;
    read |given| {
        let domain = |word: &String| {
            let labels = || word.split('.').all(|label| !label.is_empty());
            let is_domain = word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b)) && labels();
            let wrong = || format!("has {word:?}; each must be a domain like example.com");
            is_domain.then(|| word.to_ascii_lowercase()).ok_or_else(wrong)
        };
        given.list()?.iter().map(domain).collect()
    },
    shown |held| json!(held),
    schema json!({ "type": "array", "items": { "type": "string", "examples": ["example.com"] } }),
    says "a list of domains".to_owned()
}

form! {
    /// `["user-agent"]`: header fields that are kept, so none that has a secret.
    KeptFields = Vec<String>;
    read |given| {
        let field = |word: &String| {
            let name = word.to_ascii_lowercase();
            let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            let is_secret = is_named_like_a_secret(&name) || name.ends_with("cookie");
            let wrong = || format!("has {word:?}; each must be a header field without a secret, like user-agent");
            (is_name && !is_secret).then_some(name).ok_or_else(wrong)
        };
        let list = given.list()?;
        if list.len() > MAX_KEPT_FIELDS {
            return Err(format!("has {} names; it may have {MAX_KEPT_FIELDS}", list.len()));
        }
        list.iter().map(field).collect()
    },
    shown |held| json!(held),
    schema json!({ "type": "array", "items": { "type": "string", "examples": ["user-agent"] } }),
    says "a list of header fields".to_owned()
}

form! {
    /// A whole number within bounds.
    Number(least, most: u32) = u32;
    read |given, least, most| {
        let number = given.number()?;
        let held = u32::try_from(number).ok().filter(|held| (least..=most).contains(&held));
        held.ok_or_else(|| format!("is {number}; it must be {least} to {most}"))
    },
    shown |held| (*held).into(),
    schema json!({ "type": "integer", "minimum": least, "maximum": most }),
    says format!("{least} to {most}")
}

form! {
    /// A number of bytes within bounds, like `1048576` or `"1MiB"`.
    Size(least, most: u64) = u64;
    read |given, least, most| {
        let says_of = |given: &dyn Display| {
            Err(format!("is {given}; it must be {}", Size(*least, *most).says()))
        };
        let in_units = given.text().ok().and_then(|text| {
            let (unit, bytes) = UNITS.iter().find(|(unit, _)| text.ends_with(unit))?;
            let number: u64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            number.checked_mul(*bytes)
        });
        let bytes = match (in_units, given) {
            (Some(bytes), _) => bytes,
            (None, RawSetting::Toml(DeValue::String(text))) => return says_of(&format!("{text:?}")),
            (None, RawSetting::Text(text)) if text.parse::<u64>().is_err() => {
                return says_of(&format!("{text:?}"));
            }
            (None, given) => given.number()?,
        };
        if (least..=most).contains(&&bytes) { Ok(bytes) } else { says_of(&bytes) }
    },
    shown |held| size(*held),
    schema json!({ "anyOf": [
        { "type": "integer", "minimum": least, "maximum": most },
        { "type": "string", "pattern": "^[0-9]+ ?([KMG]iB|kB|MB|GB)$" },
    ] }),
    says {
        let plain = |bytes| size(bytes).to_string().replace('"', "");
        format!("{} to {} bytes, or like 64MiB", plain(*least), plain(*most))
    }
}

form! {
    /// Like [`Size`], but a 32-bit value.
    Bytes(least, most: u32) = u32;
    read |given, least, most| {
        let bytes = Size((*least).into(), (*most).into()).read(given)?;
        u32::try_from(bytes).map_err(|error| error.to_string())
    },
    shown |held| size((*held).into()),
    schema Size((*least).into(), (*most).into()).schema(),
    says Size((*least).into(), (*most).into()).says()
}

form! {
    /// A span of time within bounds, like `"30s"`.
    Span(least, most: Duration) = Duration;
    read |given, least, most| {
        let span = span(given.text()?)?;
        if (least..=most).contains(&&span) {
            return Ok(span);
        }
        Err(format!("is {}; it must be {}", span_text(span), Span(*least, *most).says()))
    },
    shown |held| span_text(*held).into(),
    schema json!({ "type": "string", "examples": ["500ms", "30s", "12h"] }),
    says format!("{} to {}", span_text(*least), span_text(*most))
}

form! {
    /// Spans within bounds, by the names of tenants, like `{ finance = "90d" }`.
    SpanOf(least, most: Duration) = BTreeMap<String, Duration>;
    read |given, least, most| {
        let wrong = || "must be a table like { finance = \"90d\" }".to_owned();
        let texts: Vec<(String, String)> = match given {
            RawSetting::Text(text) => {
                serde_json::from_str::<BTreeMap<_, _>>(text).map_err(|_why| wrong())?.into_iter().collect()
            }
            RawSetting::Toml(value) => {
                let table = value.as_table().ok_or_else(wrong)?;
                let one = |(name, value): (&Spanned<Cow<'_, str>>, &Spanned<DeValue<'_>>)| {
                    Ok((name.get_ref().to_string(), RawSetting::Toml(value.get_ref()).text()?.to_owned()))
                };
                table.iter().map(one).collect::<Result<_, String>>()?
            }
        };
        let read = |(name, text): (String, String)| {
            let span = Span(*least, *most).read(RawSetting::Text(&text)).map_err(|why| format!("has {name:?}, which {why}"))?;
            Ok((name, span))
        };
        texts.into_iter().map(read).collect()
    },
    shown |held| held.iter().map(|(name, span)| (name.clone(), span_text(*span).into())).collect::<Map<_, _>>().into(),
    schema json!({ "type": "object", "additionalProperties": Span(*least, *most).schema() }),
    says format!("a table of tenants, each with {}", Span(*least, *most).says())
}

form! {
    /// The waits of the delivery schedule.
    Steps = Vec<Duration>;
    read |given| {
        let steps = given.list()?.iter().map(|word| span(word)).collect::<Result<_, _>>()?;
        let schedule = Schedule::new(steps, 1).map_err(|error| error.to_string())?;
        Ok(schedule.steps().to_vec())
    },
    shown |held| held.iter().copied().map(span_text).collect(),
    schema json!({ "type": "array", "minItems": 1, "maxItems": 50, "items": { "type": "string" } }),
    says "a list of 1 to 50 spans of 100ms to 7days".to_owned()
}

/// One word of several.
pub(super) struct Word<T: 'static>(pub(super) &'static [(&'static str, T)]);
/// An optional value.
pub(super) struct Maybe<F>(pub(super) F);

impl<T: Copy + PartialEq> Form for Word<T> {
    type Output = T;

    fn read(&self, given: RawSetting<'_>) -> Result<T, String> {
        let text = given.text()?;
        let found = self.0.iter().find(|(word, _)| *word == text);
        found
            .map(|(_, held)| *held)
            .ok_or_else(|| format!("is {text:?}; it must be {}", self.says()))
    }

    fn shown(&self, held: &T) -> Value {
        self.0
            .iter()
            .find(|(_, known)| known == held)
            .map_or(Value::Null, |(word, _)| (*word).into())
    }

    fn schema(&self) -> Value {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        json!({ "enum": words })
    }

    fn says(&self) -> String {
        let words: Vec<&str> = self.0.iter().map(|(word, _)| *word).collect();
        match words.split_last() {
            Some((last, rest)) if !rest.is_empty() => format!("{} or {last}", rest.join(", ")),
            _ => words.join(""),
        }
    }
}

impl<F: Form> Form for Maybe<F> {
    type Output = Option<F::Output>;

    fn read(&self, given: RawSetting<'_>) -> Result<Self::Output, String> {
        self.0.read(given).map(Some)
    }

    fn shown(&self, held: &Self::Output) -> Value {
        held.as_ref().map_or(Value::Null, |held| self.0.shown(held))
    }

    fn public(&self, held: &Self::Output) -> Value {
        held.as_ref().map_or(Value::Null, |held| self.0.public(held))
    }

    fn schema(&self) -> Value {
        self.0.schema()
    }

    fn says(&self) -> String {
        self.0.says()
    }
}

/// Parses a truth value.
fn flag(given: RawSetting<'_>) -> Result<bool, String> {
    let wrong = |what: &dyn Display| format!("is {what}; it must be true or false");
    match given {
        RawSetting::Text("true") => Ok(true),
        RawSetting::Text("false") => Ok(false),
        RawSetting::Text(text) => Err(wrong(&format!("{text:?}"))),
        RawSetting::Toml(value) => value.as_bool().ok_or_else(|| wrong(&kind(value))),
    }
}

/// Parses an address range, or one address.
fn network(text: &str) -> Result<IpNet, String> {
    let one = || text.parse::<IpAddr>().ok().map(IpNet::from);
    let range = text.parse::<IpNet>().ok().or_else(one);
    range.ok_or_else(|| format!("{text:?} is no address range like 10.0.0.0/8 or 192.0.2.7"))
}

/// Formats a number of bytes with the largest unit that divides it.
fn size(bytes: u64) -> Value {
    let fits = UNITS.iter().find(|(_, unit)| bytes > 0 && bytes.is_multiple_of(*unit));
    match fits {
        Some((name, unit)) => format!("{}{name}", bytes / unit).into(),
        None => bytes.into(),
    }
}

/// Formats a span as one word.
fn span_text(span: Duration) -> String {
    humantime::format_duration(span).to_string().replace(' ', "")
}
