//! A browser for the console: a person who is logged in, pages, and the forms that stand in them.

use std::fmt::Write as _;

use oncebox::config::Settings;
use oncebox::config::databases::DatabaseAt;

use crate::rig::prelude::*;

/// Settings with a database `erp` that cannot be reached, because its program is missing.
pub(crate) fn away_erp(settings: &mut Settings) {
    let away = DatabaseAt {
        driver: Some("PostgreSQL Unicode".to_owned()),
        program: Some("/nowhere/oncebox-odbc".into()),
        tenants: vec!["default".to_owned()],
        ..DatabaseAt::default()
    };
    settings.databases.all.insert("erp".to_owned(), away);
}

/// A browser with the cookie of a person's session.
pub(crate) struct Browser<'a> {
    rig: &'a Rig,
    cookie: String,
}

/// A form as it stands in a page.
#[derive(Clone, Debug)]
pub(crate) struct Form {
    /// `get` or `post`.
    pub(crate) method: String,
    /// Where it is sent.
    pub(crate) action: String,
    /// What it sends if nothing is typed: hidden fields, values that are filled in, chosen options.
    pub(crate) fields: Vec<(String, String)>,
}

impl<'a> Browser<'a> {
    /// A new user of that role, logged in by a one-time link.
    #[track_caller]
    pub(crate) fn new(rig: &'a Rig, role: &str) -> Self {
        Self::named(rig, role, role)
    }

    /// The same with a name of its own.
    #[track_caller]
    pub(crate) fn named(rig: &'a Rig, name: &str, role: &str) -> Self {
        rig.user(name, role);
        Self::enter(rig, name)
    }

    /// A new session of a user, begun with a one-time link.
    #[track_caller]
    pub(crate) fn enter(rig: &'a Rig, name: &str) -> Self {
        let made = rig.call("POST", &format!("/v1/users/{name}/link"), b"").is(201).json();
        let url = made["url"].as_str().unwrap();
        let query = url.split_once('?').unwrap().1;
        let mut browser = Self::nobody(rig);
        browser.keep(&browser.send("POST", "/console/enter", query.as_bytes()).is(303));
        browser
    }

    /// Keeps the cookie of an answer, in place of one of the same name.
    pub(crate) fn keep(&mut self, answer: &Answer) {
        let cookie = answer.field("set-cookie").unwrap().split(';').next().unwrap();
        let name = |cookie: &str| cookie.split('=').next().unwrap().to_owned();
        let own = self.cookie.split("; ");
        let others = own.filter(|own| !own.is_empty() && name(own) != name(cookie));
        self.cookie = others.chain([cookie]).collect::<Vec<_>>().join("; ");
    }

    /// The value of one of its cookies.
    pub(crate) fn cookie(&self, name: &str) -> &str {
        let mut pairs = self.cookie.split("; ").filter_map(|pair| pair.split_once('='));
        pairs.find(|(have, _)| *have == name).unwrap().1
    }

    /// Nobody is logged in.
    pub(crate) fn nobody(rig: &'a Rig) -> Self {
        Self { rig, cookie: String::new() }
    }

    /// A request as browsers send it.
    pub(crate) fn send(&self, method: &str, path: &str, body: &[u8]) -> Answer {
        self.send_with(&[("Sec-Fetch-Site", "same-origin")], method, path, body)
    }

    /// The same with other header fields beside the cookie.
    pub(crate) fn send_with(
        &self,
        fields: &[(&str, &str)],
        method: &str,
        path: &str,
        body: &[u8],
    ) -> Answer {
        let own = [
            ("Cookie", self.cookie.as_str()),
            ("Content-Type", "application/x-www-form-urlencoded"),
        ];
        let fields = [fields, &own].concat();
        http::send(self.rig.address(), method, path, &fields, body).unwrap()
    }

    /// A form with a file, as browsers send it.
    pub(crate) fn send_parts(&self, path: &str, boundary: &str, body: &[u8]) -> Answer {
        let kind = format!("multipart/form-data; boundary={boundary}");
        let fields = [("Cookie", self.cookie.as_str()), ("Content-Type", kind.as_str())];
        http::send(self.rig.address(), "POST", path, &fields, body).unwrap()
    }

    /// Asks for a page again that the browser has.
    pub(crate) fn revisit(&self, path: &str, etag: &str) -> Answer {
        let fields = [("Cookie", self.cookie.as_str()), ("If-None-Match", etag)];
        http::send(self.rig.address(), "GET", path, &fields, b"").unwrap()
    }

    /// A page, which must be there; its HTML. No page may run what was stored.
    #[track_caller]
    pub(crate) fn get(&self, path: &str) -> String {
        let answer = self.send("GET", path, b"").is(200);
        if answer.field("content-disposition").is_some() {
            return String::from_utf8_lossy(answer.body()).into_owned();
        }
        let page = answer.text();
        assert!(page.len() <= 100_000, "{path} has {} bytes", page.len());
        assert_eq!(page.matches("<script").count(), 1, "{path} has a script of its own");
        assert!(!page.contains(" style=\""), "{path} has an inline style");
        page
    }

    /// Sends a form with these values in place of its own.
    pub(crate) fn submit(&self, form: &Form, values: &[(&str, &str)]) -> Answer {
        let body = form.body(values);
        if form.method == "get" {
            return self.send("GET", &format!("{}?{body}", form.action), b"");
        }
        self.send("POST", &form.action, body.as_bytes())
    }

    /// Carries out an action from a page: its form there, or the page that a link to it leads to. Returns the page after.
    #[track_caller]
    pub(crate) fn act(&self, page: &str, action: &str, values: &[(&str, &str)]) -> String {
        let html = self.get(page);
        let path = format!("/console/act/{action}");
        let form = form(&html, &path).unwrap_or_else(|| {
            let link = links(&html).into_iter().find(|link| link.split('?').next() == Some(&path));
            let link = link.unwrap_or_else(|| panic!("{page} has no {action}:\n{html}"));
            form(&self.get(&link), &path).unwrap()
        });
        let answer = self.submit(&form, values);
        if answer.status == 303 {
            return self.get(answer.field("location").unwrap());
        }
        answer.is(200).text()
    }
}

impl Form {
    /// What it sends with these values in place of its own.
    pub(crate) fn body(&self, values: &[(&str, &str)]) -> String {
        let own = self.fields.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        let own = own.filter(|(name, _)| values.iter().all(|(other, _)| name != other));
        let fields = own.chain(values.iter().copied());
        let fields = fields.map(|(name, value)| format!("{}={}", encoded(name), encoded(value)));
        fields.collect::<Vec<_>>().join("&")
    }

    /// The value of a field.
    #[track_caller]
    pub(crate) fn value(&self, name: &str) -> &str {
        let found = self.fields.iter().find(|(have, _)| have == name);
        found.map_or_else(|| panic!("{} has no {name}", self.action), |(_, value)| value)
    }
}

/// The form of a page that is sent to this path.
pub(crate) fn form(html: &str, action: &str) -> Option<Form> {
    let form = html.split("<form").skip(1).map(|rest| rest.split("</form>").next().unwrap());
    let mut form = form.map(|form| form.split_once('>').unwrap());
    let found = form.find(|(tag, _)| attribute(tag, "action").as_deref() == Some(action))?;
    let (tag, html) = found;
    let mut fields = Vec::new();
    for input in html.split("<input").skip(1).map(|rest| rest.split('>').next().unwrap()) {
        let is_off = matches!(attribute(input, "type").as_deref(), Some("checkbox" | "radio"))
            && !input.split(' ').any(|word| word.starts_with("checked"));
        if let Some(name) = attribute(input, "name").filter(|_| !is_off) {
            fields.push((name, attribute(input, "value").unwrap_or_default()));
        }
    }
    for area in html.split("<textarea").skip(1) {
        let (tag, rest) = area.split_once('>').unwrap();
        let value = unescaped(rest.split("</textarea>").next().unwrap());
        let value = value.strip_prefix('\n').unwrap_or(&value).to_owned();
        fields.push((attribute(tag, "name").unwrap(), value));
    }
    for select in html.split("<select").skip(1) {
        let (tag, rest) = select.split_once('>').unwrap();
        let options = rest.split("</select>").next().unwrap().split("<option").skip(1);
        let mut options = options.map(|option| option.split('>').next().unwrap());
        let chosen = options.clone().find(|option| option.contains(" selected"));
        let chosen =
            chosen.or_else(|| options.next()).and_then(|option| attribute(option, "value"));
        fields.push((attribute(tag, "name").unwrap(), chosen.unwrap_or_default()));
    }
    let method = attribute(tag, "method").unwrap_or_else(|| "get".to_owned());
    Some(Form { method, action: action.to_owned(), fields })
}

/// Where the links of a page lead.
pub(crate) fn links(html: &str) -> Vec<String> {
    let tags = html.split("<a ").skip(1).map(|rest| rest.split('>').next().unwrap());
    tags.filter_map(|tag| attribute(&format!(" {tag}"), "href")).collect()
}

/// The link of a page to the form of an action on a thing of this id or name.
#[track_caller]
pub(crate) fn asking(page: &str, action: &str, of: &str) -> String {
    let links = links(page);
    let mut found =
        links.iter().filter(|link| link.starts_with(&format!("/console/act/{action}?")));
    let link = found.find(|link| link.contains(&format!("={of}&")));
    link.unwrap_or_else(|| panic!("no {action} of {of}: {page}")).clone()
}

fn attribute(tag: &str, name: &str) -> Option<String> {
    let (_, rest) = tag.split_once(&format!(" {name}=\""))?;
    rest.split('"').next().map(unescaped)
}

/// A page without the meanings that stand at the first place of a word.
pub(crate) fn without_meanings(html: &str) -> String {
    let mut parts = html.split("<abbr ");
    let first = parts.next().unwrap_or_default().to_owned();
    let rest = parts.map(|part| part.split_once('>').unwrap().1);
    rest.fold(first, |page, part| page + &part.replacen("</abbr>", "", 1))
}

/// Text as it was before the template escaped it.
pub(crate) fn unescaped(html: &str) -> String {
    let plain = html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
    plain.replace("&amp;", "&")
}

/// A value as forms and queries carry it.
pub(crate) fn encoded(text: &str) -> String {
    let mut encoded = String::new();
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            write!(encoded, "%{byte:02X}").unwrap();
        }
    }
    encoded
}
