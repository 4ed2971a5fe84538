//! Templates: a body and header fields written from an event, with minijinja.
//!
//! A template is written by a tenant's administrator and works on what others send, so nothing that it does may exceed
//! its bounds. The engine counts steps and bytes (fuel) and limits recursion. It does not count everything: lists within
//! lists that share their parts, and operators and filters that make long values cheaply, are refused or removed here.
//! Not here: what a template is given (`mod.rs`), and what comparisons cost (`template_work.rs`).

use std::collections::BTreeMap;
use std::io::{self, Write};

use minijinja::machinery::{Token, eval, get_compiled_template, make_string_output, tokenize};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;
use minijinja::{
    AutoEscape, Environment, Error, ErrorKind, Output, State, UndefinedBehavior, Value,
};

use crate::formats::template_value::{self, Written};
use crate::formats::{escape, template_names, template_work};
use crate::model::format::{Escape, LineTemplate, TemplateText};

/// Bytes of all texts of a template at most.
const MAX_TEXT_BYTES: usize = 32 * 1024;
/// Words and signs between two braces at most: the engine's parser uses its stack for each.
const MAX_TOKENS: usize = 120;
/// Statements, such as `{% if … %}`, at most.
const MAX_STATEMENTS: usize = 500;
/// Header fields at most.
const MAX_HEADERS: usize = 32;
/// Bytes that a body may have.
pub const MAX_OUTPUT_BYTES: usize = 1 << 20;
/// Bytes that a header field may have.
const MAX_HEADER_BYTES: usize = 4096;
/// Steps of a template; 64 bytes that it makes count as one.
const FUEL: u64 = 200_000;
/// How deep a loop may call itself.
const MAX_RECURSION: usize = 60;
/// What a template is given.
const VARIABLES: [&str; 12] = [
    "id",
    "webhook_id",
    "type",
    "tenant",
    "source_system",
    "aggregate_type",
    "aggregate_id",
    "idempotency_key",
    "occurred_at",
    "received_at",
    "headers",
    "payload",
];
/// What the body is called in reasons.
const BODY: &str = "body";
/// What the template of a file's name is called in reasons.
const NAME: &str = "name";
/// What the template of a mail's subject is called in reasons.
const SUBJECT: &str = "subject";
/// Bytes that a name and a subject may have.
const MAX_LINE_BYTES: usize = 4096;
/// Filters whose results are not bounded, or that are of HTML.
const REMOVED_FILTERS: [&str; 13] = [
    "attr", "batch", "chain", "dictsort", "e", "escape", "groupby", "indent", "pprint", "safe",
    "slice", "string", "zip",
];

/// The texts that templates have made of an event.
#[derive(Debug, Default)]
pub struct Rendered {
    /// The body, if there is a template of it.
    pub body: Option<Vec<u8>>,
    /// Header fields.
    pub headers: Vec<(String, String)>,
    /// The name of the file, if there is a template of it.
    pub name: Option<String>,
    /// The subject of the mail, if there is a template of it.
    pub subject: Option<String>,
}

/// Templates, ready to be used.
#[derive(Debug)]
pub struct Template {
    env: Environment<'static>,
    /// Whether it makes a body.
    pub has_body: bool,
    /// The body's media type.
    pub content_type: Option<String>,
    headers: Vec<String>,
    has_name: bool,
    has_subject: bool,
    escape: Option<Escape>,
}

impl Template {
    /// Compiles templates; the error says which of them cannot be used, in which line, and why. `is_whole`: the body is a
    /// file or a mail, in which a line end at the end of the template counts.
    pub fn compile(text: &TemplateText, is_whole: bool) -> Result<Self, String> {
        let TemplateText {
            body,
            content_type,
            headers,
            escape,
            name,
            subject,
            attach: _,
            effect: _,
            inbox: _,
        } = text;
        let bytes: usize = text.texts().map(str::len).sum();
        if bytes > MAX_TEXT_BYTES || headers.len() > MAX_HEADERS {
            return Err(format!(
                "it may have {MAX_TEXT_BYTES} bytes and {MAX_HEADERS} header fields; this one has {bytes} and {}",
                headers.len()
            ));
        }
        if content_type.as_ref().is_some_and(|text| !is_media_type(text)) {
            return Err("content_type must be 1 to 255 printable ASCII characters".to_owned());
        }
        if escape.is_some() && body.is_none() {
            return Err("escape is of the body, and there is no template of it".to_owned());
        }
        let mut env = environment();
        if is_whole {
            let syntax = SyntaxConfig::builder().keep_trailing_newline(true).build();
            env.set_syntax(syntax.map_err(|error| error.to_string())?);
        }
        let name = name.as_ref().map(LineTemplate::text);
        let subject = subject.as_ref().map(LineTemplate::text);
        for (place, text) in [(BODY, body.as_deref()), (NAME, name), (SUBJECT, subject)] {
            if let Some(text) = text {
                add(&mut env, place.to_owned(), text)?;
            }
        }
        for (name, text) in headers {
            add(&mut env, header(name), text)?;
        }
        let headers = headers.keys().cloned().collect();
        Ok(Self {
            env,
            has_body: body.is_some(),
            content_type: content_type.clone(),
            headers,
            has_name: name.is_some(),
            has_subject: subject.is_some(),
            escape: *escape,
        })
    }

    /// Refuses names that do not exist. For a template that somebody gives: one that was stored before is used as it is, since
    /// such a name may stand where no event leads.
    pub fn check_names(&self) -> Result<(), String> {
        let lines = [(BODY, self.has_body), (NAME, self.has_name), (SUBJECT, self.has_subject)];
        let lines = lines.into_iter().filter(|(_, is_there)| *is_there);
        let lines = lines.map(|(place, _)| place.to_owned());
        let mut places = lines.chain(self.headers.iter().map(|name| header(name)));
        places.try_for_each(|place| check_names(&self.env, &place))
    }

    /// Refuses a name in which no id can stand, and one that leads out of its folder.
    pub fn check_file_name(&self, text: &str) -> Result<(), String> {
        let template = self.env.get_template(NAME).map_err(|error| reason(NAME, &error))?;
        let used = template.undeclared_variables(false);
        if !used.contains("id") && !used.contains("webhook_id") {
            return Err(format!(
                "{NAME}: it must have {{{{ id }}}} or {{{{ webhook_id }}}}, because a file is written once by its name; like \
                 {{{{ type }}}}-{{{{ id }}}}.json"
            ));
        }
        let mut plain = tokenize(text, false, SyntaxConfig::default())
            .filter_map(Result::ok)
            .filter_map(|(token, _)| match token {
                Token::TemplateData(text) => Some(text),
                _ => None,
            });
        if plain.any(|text| text.contains(['/', '\\'])) {
            return Err(format!("{NAME}: it is the name of a file, so it has no / and no \\"));
        }
        if text.trim_start().starts_with('.') {
            return Err(format!("{NAME}: it begins with a dot, so readers would not see the file"));
        }
        Ok(())
    }

    /// Renders all. The error says which template failed, in which line, and why.
    pub fn render(&self, event: &Value) -> Result<Rendered, String> {
        let body = self.has_body.then(|| self.one(BODY, event, MAX_OUTPUT_BYTES)).transpose()?;
        let each = self.headers.iter().map(|name| {
            let place = header(name);
            let value = self.one(&place, event, MAX_HEADER_BYTES)?;
            let value = String::from_utf8_lossy(&value).trim().to_owned();
            match value.chars().find(|c| !matches!(c, ' '..='~')) {
                None => Ok((name.clone(), value)),
                Some(bad) => {
                    Err(format!("{place}: its value has {bad:?}; it must be printable ASCII"))
                }
            }
        });
        let headers = each.collect::<Result<_, _>>()?;
        let name = self.name(event)?;
        let subject = self.has_subject.then(|| self.line(SUBJECT, event)).transpose()?;
        Ok(Rendered { body, headers, name, subject })
    }

    /// Renders the name of the file alone, if there is a template of it.
    pub fn name(&self, event: &Value) -> Result<Option<String>, String> {
        self.has_name.then(|| self.line(NAME, event)).transpose()
    }

    fn line(&self, place: &str, event: &Value) -> Result<String, String> {
        let line = self.one(place, event, MAX_LINE_BYTES)?;
        Ok(String::from_utf8_lossy(&line).trim().to_owned())
    }

    fn one(&self, place: &str, event: &Value, max: usize) -> Result<Vec<u8>, String> {
        let template = self.env.get_template(place).map_err(|error| reason(place, &error))?;
        let code = template_work::paying(&get_compiled_template(&template).instructions);
        // It is paid for by the byte, so it never gets much longer than a body may be.
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        let blocks = BTreeMap::new();
        let escape = self.escape.filter(|_| place == BODY);
        let escape =
            escape.map_or(AutoEscape::None, |kind| AutoEscape::Custom(kind.as_str().into()));
        eval(&self.env, &code, event.clone(), &blocks, &mut out, escape)
            .map_err(|error| reason(place, &error))?;
        if text.len() > max {
            return Err(format!("{place}: it is longer than {max} bytes"));
        }
        Ok(text.into_bytes())
    }
}

fn is_media_type(text: &str) -> bool {
    (1..=255).contains(&text.len()) && text.chars().all(|c| matches!(c, ' '..='~'))
}

fn header(name: &str) -> String {
    format!("header {name}")
}

fn environment() -> Environment<'static> {
    let mut env = Environment::new();
    env.set_undefined_behavior(UndefinedBehavior::Strict);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_formatter(write_value);
    env.set_fuel(Some(FUEL));
    env.set_recursion_limit(MAX_RECURSION);
    // For the name of what is undefined.
    env.set_debug(true);
    for name in REMOVED_FILTERS {
        env.remove_filter(name);
    }
    for name in ["debug", "dict", "namespace"] {
        env.remove_global(name);
    }
    env.add_filter("tojson", to_json_filter);
    template_work::bound(&mut env);
    env
}

fn add(env: &mut Environment<'static>, place: String, text: &str) -> Result<(), String> {
    check_text(text).map_err(|why| format!("{place}, {why}"))?;
    env.add_template_owned(place.clone(), text.to_owned())
        .map_err(|error| reason(&place, &error))?;
    let template = env.get_template(&place).map_err(|error| reason(&place, &error))?;
    let code = &get_compiled_template(&template).instructions;
    let mut refused = (0..).map_while(|n| code.get(n).map(|it| (n, template_work::unpayable(it))));
    match refused.find_map(|(n, why)| Some((n, why?))) {
        None => Ok(()),
        Some((n, why)) => {
            let line = code.get_line(n).unwrap_or_default();
            Err(format!("{place}, line {line}: {why}"))
        }
    }
}

/// Refuses names that do not exist: of filters, tests, functions and variables.
fn check_names(env: &Environment<'_>, place: &str) -> Result<(), String> {
    let template = env.get_template(place).map_err(|error| reason(place, &error))?;
    let code = &get_compiled_template(&template).instructions;
    if let Some((n, why)) = template_names::unknown(env, code) {
        let line = code.get_line(n).unwrap_or_default();
        return Err(format!("{place}, line {line}: {why}"));
    }
    let is_known =
        |name: &str| VARIABLES.contains(&name) || env.globals().any(|(own, _)| own == name);
    let all = template.undeclared_variables(false);
    // The first one by name, so that the same template gets the same answer.
    match all.iter().filter(|name| !is_known(name)).min() {
        None => Ok(()),
        Some(name) => {
            let known = VARIABLES.join(", ");
            Err(format!("{place}: there is no variable or function {name}; there are {known}"))
        }
    }
}

/// Refuses what would exhaust the engine's parser, and operators whose results it does not bound.
fn check_text(text: &str) -> Result<(), String> {
    let mut tokens = 0_usize;
    let mut statements = 0_usize;
    for token in tokenize(text, false, SyntaxConfig::default()) {
        // The parser says what is wrong.
        let Ok((token, span)) = token else { return Ok(()) };
        let line = span.start_line;
        tokens = tokens.saturating_add(1);
        match token {
            Token::TemplateData(_) | Token::VariableStart | Token::BlockStart => tokens = 0,
            Token::Tilde | Token::Plus | Token::Mul | Token::Pow => {
                return Err(format!(
                    "line {line}: +, *, ** and ~ cannot be used: a template writes values as they are"
                ));
            }
            _ => (),
        }
        statements = statements.saturating_add(usize::from(matches!(token, Token::BlockStart)));
        if tokens > MAX_TOKENS || statements > MAX_STATEMENTS {
            return Err(format!(
                "line {line}: a template may have {MAX_STATEMENTS} statements, each of them {MAX_TOKENS} words and signs"
            ));
        }
    }
    Ok(())
}

/// The kind of text that values are escaped for.
fn escape_of(state: &State<'_, '_>) -> Option<Escape> {
    match state.auto_escape() {
        AutoEscape::Custom(kind) => Escape::parse(kind),
        _ => None,
    }
}

/// Writes texts as they are or escaped, and numbers, `true`, `false` and `null` as in JSON.
fn write_value(
    out: &mut Output<'_>,
    state: &mut State<'_, '_>,
    value: &Value,
) -> Result<(), Error> {
    let kind = escape_of(state).filter(|_| !value.is_safe());
    if let (Some(kind), Some(text)) = (kind, value.as_str()) {
        let failed = |why: String| Error::new(ErrorKind::BadSerialization, why);
        let text = escape::text(kind, text).map_err(failed)?;
        template_work::pay_output(state, text.len())?;
        return Ok(out.write_str(&text)?);
    }
    if let Some(text) = value.as_str().or_else(|| template_value::digits(value)) {
        template_work::pay_output(state, text.len())?;
        return Ok(out.write_str(text)?);
    }
    match value.kind() {
        ValueKind::None if kind.is_some_and(escape::has_no_null) => Ok(()),
        ValueKind::Bool | ValueKind::Number | ValueKind::None => {
            Ok(out.write_str(&to_json(value)?)?)
        }
        kind => {
            let why = format!("a {kind} is written with |tojson, or one by one");
            Err(Error::new(ErrorKind::NonPrimitive, why))
        }
    }
}

/// The filter `tojson`. The engine's own has no bound and escapes for HTML. Where values are escaped as JSON, its result
/// is not escaped again.
fn to_json_filter(state: &State<'_, '_>, value: &Value) -> Result<Value, Error> {
    let text = to_json(value)?;
    Ok(match escape_of(state) {
        Some(Escape::Json) => Value::from_safe_string(text),
        _ => Value::from(text),
    })
}

fn to_json(value: &Value) -> Result<String, Error> {
    if value.is_undefined() {
        // Fails, with the name of what is undefined.
        value.get_attr("")?;
    }
    let mut into = Bounded { bytes: Vec::new(), max: MAX_OUTPUT_BYTES };
    let failed = |why: String| Error::new(ErrorKind::BadSerialization, why);
    serde_json::to_writer(&mut into, &Written(value)).map_err(|error| failed(error.to_string()))?;
    String::from_utf8(into.bytes).map_err(|error| failed(error.to_string()))
}

/// What failed, in which line.
fn reason(place: &str, error: &Error) -> String {
    let line = error.line().map(|line| format!(", line {line}")).unwrap_or_default();
    if error.kind() == ErrorKind::OutOfFuel {
        return format!("{place}{line}: it takes too many steps, or makes too long values");
    }
    let detail = error.detail().map(|detail| format!(": {detail}")).unwrap_or_default();
    format!("{place}{line}: {}{detail}", error.kind())
}

/// Takes so many bytes.
struct Bounded {
    bytes: Vec<u8>,
    max: usize,
}

impl Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if self.bytes.len().saturating_add(more.len()) > self.max {
            return Err(io::Error::other(format!("it is longer than {} bytes", self.max)));
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {

    use serde_json::json;

    use super::*;

    fn body(text: &str) -> Result<String, String> {
        let template = Template::compile(
            &TemplateText { body: Some(text.to_owned()), ..TemplateText::default() },
            false,
        )?;
        template.check_names()?;
        let payload = json!({
            "total": "99.00", "n": 1.5, "big": 12_345_678_901_234_567_890_u64, "paid": true, "note": null, "text": "a\"<&>ü",
            "lines": [{ "sku": "A" }, { "sku": "B" }], "same": [{ "sku": "A" }, { "sku": "B" }],
            "long": "x".repeat(1000), "twin": "x".repeat(1000), "nested": [{ "a": [1] }, { "a": [2] }],
        });
        let payload: Value = serde_json::from_value(payload).unwrap();
        let event = [("payload", payload), ("type", Value::from("invoice.paid"))];
        let body = template.render(&Value::from_pairs(event))?.body;
        Ok(String::from_utf8(body.unwrap()).unwrap())
    }

    #[test]
    fn values_are_written_as_they_are() {
        for (text, written) in [
            ("{{ type }} {{ payload.total }} {{ payload.n }}", "invoice.paid 99.00 1.5"),
            (
                "{{ payload.paid }} {{ payload.note }} {{ payload.big }}",
                "true null 12345678901234567890",
            ),
            ("{{ payload.text }}{{ payload.text|tojson }}", "a\"<&>ü\"a\\\"<&>ü\""),
            ("{{ payload.lines|tojson }}", r#"[{"sku":"A"},{"sku":"B"}]"#),
            (
                "{% for l in payload.lines %}{{ loop.index }}{{ l.sku }}{% if not loop.last %},{% endif %}{% endfor %}",
                "1A,2B",
            ),
            (
                "{{ payload.missing|default('-') }}{% if payload.missing is defined %}x{% endif %}",
                "-",
            ),
            (
                "{{ '%.2f'|format(payload.n) }} {{ payload.lines|map(attribute='sku')|join('+') }}",
                "1.50 A+B",
            ),
            ("{% for w in ['a', 'b'] %}{{ w }}{% endfor %}", "ab"),
            (
                "{{ payload.lines[1].sku }}{{ payload['total'] }}{{ {'true': 'y'}[payload.paid|tojson] }}",
                "B99.00y",
            ),
            ("{{ payload.total == '99.00' and 1 < payload.n and payload.n <= 1.5 }}", "true"),
            (
                "{{ payload.n in [1, 1.5] }} {{ 'sku' in payload.lines[0] }} {{ 'b' not in 'abc' }}",
                "true true false",
            ),
            ("{{ payload.note == none }} {{ payload.lines == none }}", "true false"),
            (
                "{% for l in payload.lines|sort(attribute='sku', reverse=true) %}{{ l.sku }}{% endfor %}",
                "BA",
            ),
            ("{{ payload.lines|selectattr('sku', 'in', ['B'])|map(attribute='sku')|join }}", "B"),
            ("{{ [3, 1, 3]|unique|sort|join(',') }} {{ [3, 1]|max }} {{ [3, 1]|sum }}", "1,3 3 4"),
            (
                "{% for n in [1, 2, 3] %}{{ [4, 5, 6][loop.index0] if n != 2 or false else '-' }}{% else %}x{% endfor %}",
                "4-6",
            ),
        ] {
            assert_eq!(body(text).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn what_fails_is_told_with_its_line() {
        for (text, why) in [
            ("a\n{{ payload.nope }}", "body, line 2: undefined value: `payload.nope` is undefined"),
            (
                "{% if payload.nope %}{% endif %}",
                "body, line 1: undefined value: `payload.nope` is undefined",
            ),
            (
                "{{ payload.lines }}",
                "body, line 1: not a primitive: a sequence is written with |tojson, or one by one",
            ),
            ("\n\n{{ type|nope }}", "body, line 3: there is no filter nope"),
            ("{{ type is nope }}", "body, line 1: there is no test nope"),
            ("\n{{ payload.lines|map('nope')|list }}", "body, line 2: there is no filter nope"),
            ("{{ payload.lines|select('nope')|list }}", "body, line 1: there is no test nope"),
            (
                "{{ payload.lines|rejectattr('sku', 'nope', 1)|list }}",
                "body, line 1: there is no test nope",
            ),
            (
                "\n{{ type",
                "body, line 2: syntax error: unexpected end of input, expected end of variable block",
            ),
            ("{% include 'x' %}", "body, line 1: syntax error: unknown statement include"),
            (
                "{% macro a() %}{% endmacro %}",
                "body, line 1: syntax error: unknown statement macro",
            ),
            (
                "\n{{ type ~ type }}",
                "body, line 2: +, *, ** and ~ cannot be used: a template writes values as they are",
            ),
            (
                "{{ [type]|tojson }}",
                "body, line 1: lists and objects of variables cannot be made here",
            ),
        ] {
            assert_eq!(body(text), Err(why.to_owned()), "{text}");
        }
    }

    #[test]
    fn a_variable_that_is_not_given_is_refused_when_it_is_saved() {
        for text in [
            "{{ nope|tojson }}",
            "{{ payloads.total }}",
            "{{ nope() }}",
            "{% if nope is defined %}{% endif %}",
            "{{ nope|default('-') }}",
            "{% for line in nope %}{% endfor %}",
            "{{ namespace() }}",
        ] {
            let why = body(text).unwrap_err();
            assert!(why.starts_with("body: there is no variable or function "), "{text}: {why}");
        }
        for text in [
            "{% set own = 1 %}{{ own }}",
            "{% for line in payload.lines %}{{ loop.index }}{{ line.sku }}{% endfor %}",
            "{% for n in range(2) %}{{ n }}{% endfor %}",
            "{% with a = 1 %}{{ a }}{% endwith %}",
            "{% filter upper %}a{% endfilter %}",
        ] {
            body(text).unwrap();
        }
    }

    /// What a template makes of a payload that is written like this.
    fn of_payload(text: &str, payload: &str) -> Result<String, String> {
        let text = TemplateText { body: Some(text.to_owned()), ..TemplateText::default() };
        let template = Template::compile(&text, false)?;
        template.check_names()?;
        let payload =
            template_value::of(crate::model::json::Json::read(payload.as_bytes()).unwrap());
        let body = template.render(&Value::from_pairs([("payload", payload)]))?.body;
        Ok(String::from_utf8(body.unwrap()).unwrap())
    }

    #[test]
    fn numbers_keep_their_digits() {
        let payload = r#"{"total":99.90,"zero":0.00,"id":123456789012345678.91,"long":18446744073709551617,
            "huge":1e400,"n":2,"cut":"Danke \ud83d","lines":[{"p":10.50},{"p":9},{"p":9.00},{"p":10.5}]}"#;
        for (text, written) in [
            (
                "{{ payload.total }} {{ payload.id }} {{ payload.long }}",
                "99.90 123456789012345678.91 18446744073709551617",
            ),
            (
                "{{ payload.total|tojson }} {{ payload.lines|tojson }}",
                r#"99.90 [{"p":10.50},{"p":9},{"p":9.00},{"p":10.5}]"#,
            ),
            ("{{ payload.huge }} {{ payload.cut }}", "1e400 Danke \u{fffd}"),
            (
                "{{ payload.total == 99.9 }} {{ 99.9 == payload.total }} {{ payload.total != 99.9 }}",
                "true true false",
            ),
            (
                "{{ payload.total < 100 }} {{ payload.huge > payload.id }} {{ payload.n >= payload.total }}",
                "true true false",
            ),
            ("{{ payload.total == '99.90' }} {{ payload.total in [1, 99.9] }}", "false true"),
            ("{{ payload.id == 123456789012345678 }}", "false"),
            ("{% if payload.zero %}a{% else %}b{% endif %}", "b"),
            (
                "{{ payload.total - 1 }} {{ 1 - payload.total }} {{ payload.total / 2 }} {{ -payload.total }}",
                "98.9 -98.9 49.95 -99.9",
            ),
            ("{{ payload.total // 1 }} {{ payload.total % 2 }}", "99.0 1.9000000000000057"),
            (
                "{{ payload.total|round(1) }} {{ payload.total|int }} {{ payload.total|float }} {{ (1 - payload.total)|abs }}",
                "99.9 99 99.9 98.9",
            ),
            ("{{ '%.2f'|format(payload.total) }} {{ '%s'|format(payload.total) }}", "99.90 99.90"),
            ("{{ payload.total|replace('.', ',') }} {{ payload.total|default(0) }}", "99,90 99.90"),
            (
                "{{ payload.lines|sum(attribute='p') }} {{ payload.lines|map(attribute='p')|sum }}",
                "39.0 39.0",
            ),
            ("{{ payload.lines|map(attribute='p')|join(' ') }}", "10.50 9 9.00 10.5"),
            ("{{ payload.lines|map(attribute='p')|sort|join(' ') }}", "9 9.00 10.50 10.5"),
            (
                "{{ payload.lines|sort(attribute='p', reverse=true)|map(attribute='p')|join(' ') }}",
                "10.50 10.5 9 9.00",
            ),
            ("{{ payload.lines|map(attribute='p')|unique|join(' ') }}", "10.50 9"),
            (
                "{{ payload.lines|map(attribute='p')|max }} {{ payload.lines|map(attribute='p')|min }}",
                "10.50 9",
            ),
            (
                "{{ payload.lines|selectattr('p', 'lt', 10)|map(attribute='p')|join(' ') }}",
                "9 9.00",
            ),
            (
                "{{ payload.total is number }} {{ payload.total is mapping }} {{ payload.total is string }}",
                "true false false",
            ),
        ] {
            assert_eq!(of_payload(text, payload).as_deref(), Ok(written), "{text}");
        }
    }

    #[test]
    fn a_name_that_is_there_twice_fails_where_it_is_needed() {
        let payload = r#"{"a":1,"a":2,"b":3}"#;
        assert_eq!(of_payload("{{ payload.b }}", payload).as_deref(), Ok("3"));
        for text in ["{{ payload.a }}", "{{ payload|tojson }}", "{{ payload.a == 1 }}"] {
            let why = of_payload(text, payload).unwrap_err();
            assert!(why.contains("the name \"a\" is twice"), "{text}: {why}");
        }
    }

    /// Texts that would take the memory, the stack or the time of the process.
    #[test]
    fn a_hostile_template_is_bounded() {
        let set = |start: &str, step: &str, end: &str| {
            format!("{{% set a = {start} %}}{}{end}", step.repeat(450))
        };
        for text in [
            "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}".to_owned(),
            "{% for a in range(100000) %}{{ payload.long }}{% endfor %}".to_owned(),
            "{% for a in range(100000) %}{% for b in range(100000) %}{{ payload.long }}{% endfor %}{% endfor %}".to_owned(),
            "{% for a in payload.lines recursive %}{{ loop(payload.lines) }}{% endfor %}".to_owned(),
            format!("{}{}", "{% if 1 %}".repeat(3000), "{% endif %}".repeat(3000)),
            format!("{{% if 0 %}}{}{{% endif %}}", "{% elif 0 %}".repeat(2900)),
            format!("{{{{ {}1 }}}}", "not ".repeat(8000)),
            format!("{{{{ {}1 }}}}", "-".repeat(30_000)),
            format!("{{{{ {}1{} }}}}", "(".repeat(15_000), ")".repeat(15_000)),
            format!("{{{{ payload{} }}}}", ".a".repeat(15_000)),
            format!("{{{{ type{} }}}}", "|upper".repeat(5000)),
            format!("{{{{ 1{} }}}}", " and 1".repeat(5000)),
            "{{ 'a' * 1000000000 }}".to_owned(),
            "{{ ([1] * 100000000)|tojson }}".to_owned(),
            "{{ 'a'|replace('a', payload.long)|replace('x', payload.long)|replace('x', payload.long) }}".to_owned(),
            "{{ '%1000000000d'|format(1) }}".to_owned(),
            "{{ range(100000)|join(payload.long) }}".to_owned(),
            set("payload.long", "{%set a=a~a%}", "{{ a }}"),
            set("payload.lines", "{%set a=[a,a]%}", "{{ a|tojson }}"),
            set("payload.long", "{%set b%}{{a}}{{a}}{%endset%}{%set a=b%}", "{{ a }}"),
            set("payload.long", "{%set a=a|replace('x','xx')%}", "{{ a }}"),
            "x".repeat(MAX_TEXT_BYTES + 1),
        ] {
            let shown: String = text.chars().take(60).collect();
            assert!(body(&text).is_err(), "{shown}");
        }
        // These are deep, and harmless.
        for step in [
            "{%set a=a|reverse%}",
            "{%set a=a[0:]%}",
            "{%set a=a|map('int')%}",
            "{%set a=a|select%}",
        ] {
            body(&set("range(3)", step, "{{ a|tojson }}")).unwrap();
        }
    }

    /// Each of these is cheap for the engine, and none is for the processor.
    #[test]
    fn lists_and_objects_are_not_compared_and_texts_are_paid_for() {
        let shared = "{%set a=range(2)|map(attribute='x',default=a)|list%}";
        let shared =
            format!("{{% set a = payload.lines %}}{}{{{{ a == a|list }}}}", shared.repeat(60));
        let [lists, orders] = ["lists and objects cannot be compared", "takes texts or numbers"];
        let key = "must be a text or a number";
        let long = "more than 256 bytes";
        let fuel = "too many steps";
        for (text, why) in [
            (shared.as_str(), key),
            ("{{ payload.lines == payload.same }}", lists),
            ("{{ payload.lines != payload.same }}", lists),
            ("{{ payload.lines < payload.same }}", lists),
            ("{{ payload.lines[0] in payload.same }}", "cannot be looked for"),
            ("{{ payload.lines is eq payload.same }}", lists),
            ("{{ payload.lines is in payload.same }}", "cannot be looked for"),
            ("{{ payload.same|select('ne', payload.lines[0])|list }}", lists),
            ("{{ payload.lines|sort|tojson }}", orders),
            ("{{ payload.lines|unique|tojson }}", orders),
            ("{{ payload.nested|max(attribute='a')|tojson }}", orders),
            ("{{ payload.nested|sort(attribute='b, a')|tojson }}", orders),
            ("{{ payload[payload.lines] }}", key),
            ("{{ {'a': 1}[payload.lines]|default(1) }}", key),
            ("{{ {'a': 1}[payload.long]|default(1) }}", long),
            (
                "{% for a in range(2) %}{{ loop.changed(payload.lines) }}{% endfor %}",
                "loop.changed",
            ),
            ("{{ 1 < payload.n < 2 }}", "two sides"),
            ("{{ payload.long|replace(payload.long, '') }}", long),
            ("{{ payload.long|trim(payload.long) }}", long),
            ("{{ ['a']|sum(start='') }}", "begins with 0"),
            ("{{ payload.nope == 1 }}", "`payload.nope` is undefined"),
            (
                "{% for a in range(15000) %}{% if payload.long == payload.twin %}{% endif %}{% endfor %}",
                fuel,
            ),
            (
                "{% for a in range(15000) %}{% if payload.long in payload.twin %}{% endif %}{% endfor %}",
                fuel,
            ),
            ("{{ range(20000)|map('default', 'x')|reject('in', payload.long)|length }}", long),
        ] {
            let said = body(text).unwrap_err();
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn a_header_field_is_one_line_of_printable_ascii() {
        let of = |text: &str| {
            let headers = [("X-Invoice".to_owned(), text.to_owned())].into();
            let template =
                Template::compile(&TemplateText { headers, ..TemplateText::default() }, false)?;
            template.check_names()?;
            template.render(&Value::from_pairs([("id", "a\nb"), ("type", "ü")]))
        };
        assert_eq!(
            of(" {{ 1 }}-{{ 'a' }}\n").unwrap().headers,
            [("X-Invoice".to_owned(), "1-a".to_owned())]
        );
        for (text, why) in [
            ("{{ id }}", "header X-Invoice: its value has '\\n'; it must be printable ASCII"),
            ("{{ type }}", "header X-Invoice: its value has 'ü'; it must be printable ASCII"),
            (
                "{% for a in range(5000) %}a{% endfor %}",
                "header X-Invoice: it is longer than 4096 bytes",
            ),
            (
                "{{ payload.nope }}",
                "header X-Invoice, line 1: undefined value: `payload` is undefined",
            ),
        ] {
            assert_eq!(of(text).unwrap_err(), why);
        }
    }
}
