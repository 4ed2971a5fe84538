//! The questions of a setup on a terminal. Each has an answer that an empty line means, and is asked again if the answer
//! cannot be used.

use std::io::BufRead;

use crate::cli::pii;
use crate::cli::prelude::*;
use crate::cli::secrets;
use crate::cli::setup::settings_file;
use crate::cli::setup::wishes::{self, Wishes};
use crate::config::Settings;
use crate::signatures::kinds;

/// Asks for all wishes.
pub(super) fn asked(lines: &mut impl BufRead, settings: &Settings) -> Result<Wishes, Failure> {
    out::note("Enter takes what is in brackets.");
    let listen = settings.listen.api.to_string();
    let listen = ask(
        lines,
        "1/5  Address that the service listens on; keep it behind a proxy on this machine",
        &listen,
        |answer| checked(settings, "listen.api", answer),
    )?;
    let public_url = ask(
        lines,
        "2/5  URL under which providers reach this box, like https://hooks.example.com",
        settings.listen.public_url.as_deref().unwrap_or_default(),
        |answer| checked(settings, "listen.public_url", answer),
    )?;
    let proxies: Vec<String> =
        settings.listen.trusted_proxies.iter().map(ToString::to_string).collect();
    let usual = match (proxies.as_slice(), given(public_url.clone())) {
        ([], Some(_)) => "127.0.0.1".to_owned(),
        _ => proxies.join(", "),
    };
    let proxies = ask(
        lines,
        "3/5  Address of the proxy in front of it, whose X-Forwarded-For counts; - for none",
        &usual,
        |answer| checked(settings, "listen.trusted_proxies", answer),
    )?;
    let provider =
        ask(lines, "4/5  Provider that posts webhooks, like stripe; ? lists them", "", provider)?;
    let provider = given(provider);
    let mut wishes = Wishes {
        listen: given(listen),
        public_url: given(public_url),
        trusted_proxies: given(proxies).into_iter().collect(),
        provider,
        ..Wishes::default()
    };
    if wishes.provider.is_some() {
        let policy = ask(
            lines,
            "     Its personal data: allow, or the file of a policy (docs/privacy.md)",
            "allow",
            |answer| pii::policy_from_flag("it", answer).map(drop).map_err(|why| why.message),
        )?;
        wishes.pii = Some(policy);
        let file = ask(
            lines,
            "     File with its secret; without one a secret is made, which you give to the provider",
            "",
            |answer| match given(answer.to_owned()) {
                None => Ok(()),
                Some(path) => secrets::one_line(path.as_ref()).map(drop).map_err(|why| why.message),
            },
        )?;
        wishes.secret_file = given(file).map(Into::into);
    }
    let target = ask(
        lines,
        "5/5  URL that gets its webhooks, like http://10.0.0.5:8069/webhooks",
        "",
        |answer| match given(answer.to_owned()) {
            None => Ok(()),
            Some(url) => wishes::target(&url).map(drop),
        },
    )?;
    wishes.target = given(target).map(|url| wishes::target(&url).unwrap_or(url));
    Ok(wishes)
}

/// Asks until the answer can be used.
fn ask(
    lines: &mut impl BufRead,
    question: &str,
    usual: &str,
    check: impl Fn(&str) -> Result<(), String>,
) -> Result<String, Failure> {
    loop {
        let shown = if usual.is_empty() { "none" } else { usual };
        out::note(format_args!("{question} [{shown}]"));
        let mut answer = String::new();
        let read = lines.read_line(&mut answer);
        if !read.is_ok_and(|bytes| bytes > 0) {
            return Err(Failure::usage("the questions were not answered; nothing was changed"));
        }
        let answer = Some(answer.trim()).filter(|answer| !answer.is_empty()).unwrap_or(usual);
        match check(answer) {
            Ok(()) => return Ok(answer.to_owned()),
            Err(why) => out::note(format_args!("     {why}")),
        }
    }
}

/// An answer that wants something.
fn given(answer: String) -> Option<String> {
    Some(answer).filter(|answer| !matches!(answer.as_str(), "" | "-"))
}

/// Whether a key may have this value. No value is removed here, because a person may have written its file.
fn checked(settings: &Settings, path: &str, answer: &str) -> Result<(), String> {
    match given(answer.to_owned()) {
        None if settings_file::is_set(settings, path) => {
            Err(format!("{path} is set; oncebox config show says where: remove it there"))
        }
        None => Ok(()),
        Some(value) => settings_file::set(&mut settings.clone(), path, &value)
            .map_err(|wrong| format!("{path} {wrong}")),
    }
}

fn provider(answer: &str) -> Result<(), String> {
    match answer {
        "" | "-" => Ok(()),
        "?" => {
            let ready = kinds().filter(|kind| wishes::scheme(kind).is_ok());
            Err(ready.collect::<Vec<_>>().join(" "))
        }
        kind if kinds().any(|known| known == kind) => {
            wishes::scheme(kind).map(drop).map_err(|failure| failure.message)
        }
        other => Err(format!("there is no scheme {other}; ? lists them")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(settings: &Settings, answers: &str) -> Result<Wishes, Failure> {
        asked(&mut answers.as_bytes(), settings)
    }

    #[test]
    fn an_empty_line_keeps_what_is_set_and_nothing_is_removed() {
        let mut settings = Settings::default();
        settings.listen.public_url = Some("https://a.example".to_owned());
        let wishes = answered(&settings, "\n-\n\n\n-\n\n").unwrap();
        assert_eq!(wishes.listen.as_deref(), Some("127.0.0.1:8710"));
        assert_eq!(wishes.public_url.as_deref(), Some("https://a.example"));
        assert_eq!(wishes.trusted_proxies, ["127.0.0.1"]);
        assert_eq!((wishes.provider, wishes.target), (None, None));
    }

    #[test]
    fn without_a_public_url_no_proxy_is_expected() {
        let wishes = answered(&Settings::default(), "\n\n\n\n\n").unwrap();
        assert!(wishes.public_url.is_none() && wishes.trusted_proxies.is_empty());
    }

    #[test]
    fn answers_that_end_early_change_nothing() {
        let ended = answered(&Settings::default(), "\n\n").unwrap_err();
        assert_eq!(ended.code, exit::USAGE);
        assert!(ended.message.contains("nothing was changed"), "{}", ended.message);
    }
}
