//! What the engine of templates does without paying for it: comparisons, look-ups by a key, filters with long arguments.
//!
//! The engine compares lists and objects as deep as they are, and texts as long as they are, for one step. Here lists and
//! objects are not compared, and texts are paid for by their length. Operators are instructions of the engine: in a
//! program that is run they are calls of tests.

use std::cmp::Ordering;

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters, tests};

use crate::formats::template_value::{self, as_float, as_text, digits, is_compound};

/// Bytes that one step pays for.
const STEP_BYTES: usize = 64;
/// How many bytes of work a byte of output is.
const OUTPUT_COST: usize = 4;
/// Bytes of a text that is given to a filter or is a name of a member, at most.
const MAX_ARGUMENT_BYTES: usize = 256;
/// The place of a filter or a test that the engine looks up each time.
const NOT_KEPT: u8 = u8::MAX;

const KEY: &str = "key_of_an_item";
const IN: &str = "operator_in";
const OPERAND: &str = "operand_of_an_operator";

/// How two values are compared: by the engine, and by the order of numbers that are objects.
#[derive(Clone, Copy)]
struct Compare {
    plain: fn(&Value, &Value) -> bool,
    of_numbers: fn(Ordering) -> bool,
    /// Whether it holds for a number and a value that is none.
    otherwise: bool,
}

impl Compare {
    const fn by(plain: fn(&Value, &Value) -> bool, of_numbers: fn(Ordering) -> bool) -> Self {
        Self { plain, of_numbers, otherwise: false }
    }
}

const EQUAL: Compare = Compare::by(|a, b| a == b, Ordering::is_eq);

/// An operator's test, and the names of the same test in a template.
const COMPARISONS: [(&str, &[&str], Compare); 6] = [
    ("operator_eq", &["eq", "equalto", "=="], EQUAL),
    (
        "operator_ne",
        &["ne", "!="],
        Compare { plain: |a, b| a != b, of_numbers: Ordering::is_ne, otherwise: true },
    ),
    ("operator_lt", &["lt", "lessthan", "<"], Compare::by(|a, b| a < b, Ordering::is_lt)),
    ("operator_le", &["le", "<="], Compare::by(|a, b| a <= b, Ordering::is_le)),
    ("operator_gt", &["gt", "greaterthan", ">"], Compare::by(|a, b| a > b, Ordering::is_gt)),
    ("operator_ge", &["ge", ">="], Compare::by(|a, b| a >= b, Ordering::is_ge)),
];

/// Filters that order items.
const ORDERING: [&str; 4] = ["sort", "unique", "min", "max"];

/// Replaces the tests and filters that do not pay for their work.
pub fn bound(env: &mut Environment<'static>) {
    for name in ["lower", "upper", "sameas"] {
        env.remove_test(name);
    }
    for (operator, names, compare) in COMPARISONS {
        env.add_test(operator, move |state: &State<'_, '_>, a: Value, b: Value| {
            defined(&a)?;
            defined(&b)?;
            compared(state, &a, &b, compare)
        });
        for name in names {
            env.add_test(*name, move |state: &State<'_, '_>, a: Value, b: Value| {
                compared(state, &a, &b, compare)
            });
        }
    }
    env.add_test(IN, contained);
    env.add_test("in", contained);
    env.add_test("startingwith", |state: &State<'_, '_>, a: Value, b: Value| {
        both_texts(state, &a, &b, |a, b| a.starts_with(b))
    });
    env.add_test("endingwith", |state: &State<'_, '_>, a: Value, b: Value| {
        both_texts(state, &a, &b, |a, b| a.ends_with(b))
    });
    calculate(env);
    env.add_filter(KEY, |key: Value| match refused("name of a member", &key, false) {
        Some(why) => Err(why),
        None => Ok(key),
    });
    for (name, filter) in [
        ("sort", Value::from_function(filters::sort)),
        ("unique", Value::from_function(filters::unique)),
        ("min", Value::from_function(filters::min)),
        ("max", Value::from_function(filters::max)),
        ("sum", Value::from_function(sum)),
        ("map", Value::from_function(filters::map)),
        ("select", Value::from_function(filters::select)),
        ("reject", Value::from_function(filters::reject)),
        ("selectattr", Value::from_function(filters::selectattr)),
        ("rejectattr", Value::from_function(filters::rejectattr)),
        ("join", Value::from_function(filters::join)),
        ("replace", Value::from_function(filters::replace)),
        ("split", Value::from_function(filters::split)),
        ("trim", Value::from_function(filters::trim)),
    ] {
        let call = move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args = args.into_values();
            checked(state, name, &args)?;
            match ordered(name, &args)? {
                Some(result) => Ok(result),
                None => filter.call(state, &args),
            }
        };
        env.add_filter(name, call);
    }
}

/// Replaces the functions that calculate by others for numbers that are objects.
fn calculate(env: &mut Environment<'static>) {
    env.add_filter(OPERAND, as_float);
    env.add_test("number", |value: Value| digits(&value).is_some() || value.is_number());
    env.add_test("float", |value: Value| tests::is_float(&as_float(value)));
    for name in ["integer", "int"] {
        env.add_test(name, |value: Value| tests::is_integer(&value));
    }
    env.add_test("mapping", |value: Value| value.kind() == ValueKind::Map);
    for (name, filter) in [
        ("abs", Value::from_function(filters::abs)),
        ("float", Value::from_function(filters::float)),
        ("int", Value::from_function(filters::int)),
        ("round", Value::from_function(filters::round)),
    ] {
        env.add_filter(name, move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
            let args: Vec<Value> = args.into_values().into_iter().map(as_float).collect();
            filter.call(state, &args)
        });
    }
    let format = Value::from_function(filters::format);
    env.add_filter("format", move |state: &mut State<'_, '_>, args: Rest<ValueOrKwargs>| {
        let mut args = args.into_values();
        let is_text = args.first().and_then(Value::as_str).is_some_and(|form| form.contains("%s"));
        let plain = if is_text { as_text } else { as_float };
        args = args.into_iter().map(plain).collect();
        format.call(state, &args)
    });
}

/// A program that pays for its comparisons and look-ups.
pub fn paying<'e>(code: &Instructions<'e>) -> Instructions<'e> {
    let operator = |name| vec![Instruction::PerformTest(name, Some(2), NOT_KEPT)];
    let operand = |then: &[Instruction<'e>]| {
        let mut part = vec![Instruction::ApplyFilter(OPERAND, Some(1), NOT_KEPT)];
        part.extend_from_slice(then);
        part
    };
    let mut parts = Vec::new();
    let mut starts = Vec::new();
    let mut length = 0_u32;
    for instruction in (0..).map_while(|n| code.get(n)) {
        let part = match instruction {
            Instruction::Eq => operator("operator_eq"),
            Instruction::Ne => operator("operator_ne"),
            Instruction::Lt => operator("operator_lt"),
            Instruction::Lte => operator("operator_le"),
            Instruction::Gt => operator("operator_gt"),
            Instruction::Gte => operator("operator_ge"),
            Instruction::In => operator(IN),
            Instruction::Neg => operand(&[Instruction::Neg]),
            Instruction::Sub | Instruction::Div | Instruction::IntDiv | Instruction::Rem => {
                let mut part = operand(&[Instruction::Swap]);
                part.extend(operand(&[Instruction::Swap, instruction.clone()]));
                part
            }
            // So that the formatter takes pay for it. It is the template's own text, so it is not escaped.
            Instruction::EmitRaw(text) => {
                let text = Value::from_safe_string((*text).to_owned());
                vec![Instruction::LoadConst(text), Instruction::Emit]
            }
            Instruction::GetItem => {
                vec![Instruction::ApplyFilter(KEY, Some(1), NOT_KEPT), Instruction::GetItem]
            }
            other => vec![other.clone()],
        };
        starts.push(length);
        length = length.saturating_add(u32::try_from(part.len()).unwrap_or(u32::MAX));
        parts.push(part);
    }
    let start = |old: &u32| {
        usize::try_from(*old).ok().and_then(|old| starts.get(old)).copied().unwrap_or(length)
    };
    let mut program = Instructions::new(code.name(), code.source());
    for (part, n) in parts.into_iter().zip(0..) {
        let line = code.get_line(n).and_then(|line| u16::try_from(line).ok()).unwrap_or_default();
        for mut instruction in part {
            if let Instruction::Jump(to)
            | Instruction::JumpIfFalse(to)
            | Instruction::JumpIfFalseOrPop(to)
            | Instruction::JumpIfTrueOrPop(to)
            | Instruction::Iterate(to) = &mut instruction
            {
                *to = start(to);
            }
            program.add_with_line(instruction, line);
        }
    }
    program
}

/// Why an instruction cannot be part of a program.
pub fn unpayable(instruction: &Instruction<'_>) -> Option<&'static str> {
    match instruction {
        Instruction::BuildList(_) | Instruction::BuildMap(_) | Instruction::BuildTuple(_) => {
            Some("lists and objects of variables cannot be made here")
        }
        Instruction::CompareAndPreserve(_) => {
            Some("a comparison has two sides; write two of them with `and`")
        }
        Instruction::CallMethod("changed", _) => Some("loop.changed cannot be used"),
        _ => None,
    }
}

/// Pays for text that is written, beyond what the engine takes: all steps pay for 2.5 MB.
pub fn pay_output(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    pay(state, bytes.saturating_mul(OUTPUT_COST))
}

fn pay(state: &State<'_, '_>, bytes: usize) -> Result<(), Error> {
    state.consume_fuel(u64::try_from(bytes / STEP_BYTES).unwrap_or(u64::MAX))
}

fn length(value: &Value) -> usize {
    value.as_str().or_else(|| digits(value)).map_or(0, str::len)
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}

/// Fails, with the name of what is undefined.
fn defined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() { value.get_attr("").map(drop) } else { Ok(()) }
}

fn compared(state: &State<'_, '_>, a: &Value, b: &Value, test: Compare) -> Result<bool, Error> {
    if is_compound(a) && is_compound(b) {
        return Err(invalid("lists and objects cannot be compared; compare texts or numbers"));
    }
    if digits(a).is_some() || digits(b).is_some() {
        pay(state, length(a).max(length(b)))?;
        let order = template_value::compare(a, b);
        return Ok(order.map_or(test.otherwise, test.of_numbers));
    }
    pay(state, length(a).min(length(b)))?;
    Ok((test.plain)(a, b))
}

fn both_texts(
    state: &State<'_, '_>,
    a: &Value,
    b: &Value,
    test: fn(&str, &str) -> bool,
) -> Result<bool, Error> {
    pay(state, length(b))?;
    Ok(a.as_str().zip(b.as_str()).is_some_and(|(a, b)| test(a, b)))
}

fn contained(state: &State<'_, '_>, value: Value, within: Value) -> Result<bool, Error> {
    defined(&value)?;
    defined(&within)?;
    if is_compound(&value) {
        return Err(invalid("lists and objects cannot be looked for; look for a text or a number"));
    }
    pay(state, length(&within).saturating_add(length(&value)))?;
    if let Some(within) = within.as_str() {
        return Ok(within.contains(&value.to_string()));
    }
    if within.kind() == ValueKind::Map {
        return Ok(!within.get_item(&value)?.is_undefined());
    }
    for item in within.try_iter()? {
        state.consume_fuel(1)?;
        if !is_compound(&item) && compared(state, &item, &value, EQUAL)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sum(state: &State<'_, '_>, values: Value, kwargs: Kwargs) -> Result<Value, Error> {
    if kwargs.has("start") {
        return Err(invalid("the filter sum begins with 0"));
    }
    let attribute = kwargs.peek::<Option<String>>("attribute")?;
    let mut terms = Vec::new();
    for item in values.try_iter()? {
        state.consume_fuel(1)?;
        terms.push(attribute.as_ref().map_or_else(|| item.clone(), |path| at_path(&item, path)));
    }
    if terms.iter().all(|term| digits(term).is_none()) {
        return filters::sum(state, values, None, None, kwargs);
    }
    let terms = Value::from(terms.into_iter().map(as_float).collect::<Vec<_>>());
    filters::sum(state, terms, None, None, std::iter::empty::<(&str, Value)>().collect())
}

/// Why a value cannot be an argument.
fn refused(of: &str, value: &Value, may_be_list: bool) -> Option<Error> {
    if length(value) > MAX_ARGUMENT_BYTES {
        return Some(invalid(format!("the {of} has more than {MAX_ARGUMENT_BYTES} bytes")));
    }
    (is_compound(value) && !may_be_list)
        .then(|| invalid(format!("the {of} must be a text or a number")))
}

/// Checks what a filter is given beside its value, and pays for the order of items.
fn checked(state: &State<'_, '_>, name: &str, args: &[Value]) -> Result<(), Error> {
    let Some((value, rest)) = args.split_first() else { return Ok(()) };
    let (rest, named): (&[Value], Kwargs) = from_args(rest)?;
    let named_values = named.args().map(|of| named.peek::<Value>(of));
    let of = format!("argument of {name}");
    for argument in rest.iter().cloned().map(Ok).chain(named_values) {
        let may_be_list = name.starts_with("select") || name.starts_with("reject");
        if let Some(why) = refused(&of, &argument?, may_be_list) {
            return Err(why);
        }
    }
    if !ORDERING.contains(&name) {
        return Ok(());
    }
    let attributes = named.peek::<Option<String>>("attribute")?;
    let mut items = 1_usize;
    let mut bytes = 0_usize;
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        let keys = attributes.iter().flat_map(|all| all.split(','));
        let keys = keys.map(|path| at_path(&item, path.trim()));
        for key in keys.chain(attributes.is_none().then(|| item.clone())) {
            if is_compound(&key) {
                return Err(invalid(format!(
                    "lists and objects cannot be compared: {name} takes texts or numbers"
                )));
            }
            bytes = bytes.saturating_add(length(&key));
        }
        items = items.saturating_add(1);
    }
    pay(state, bytes.saturating_mul(usize::try_from(items.ilog2()).unwrap_or_default()))
}

/// The result of a filter that orders items, where some of their keys are numbers that are objects: the engine does not compare
/// those with other numbers. `None`: the engine can.
fn ordered(name: &str, args: &[Value]) -> Result<Option<Value>, Error> {
    let Some((value, rest)) = args.split_first().filter(|_| ORDERING.contains(&name)) else {
        return Ok(None);
    };
    let (_, named): (&[Value], Kwargs) = from_args(rest)?;
    let attributes = named.peek::<Option<String>>("attribute")?;
    let keys = |item: &Value| match &attributes {
        Some(all) => all.split(',').map(|path| at_path(item, path.trim())).collect(),
        None => vec![item.clone()],
    };
    let items = value.try_iter()?.map(|item| (keys(&item), item));
    let mut items: Vec<(Vec<Value>, Value)> = items.collect();
    if !items.iter().flat_map(|(keys, _)| keys).any(|key| digits(key).is_some()) {
        return Ok(None);
    }
    let is_reverse = named.peek::<Option<bool>>("reverse")?.unwrap_or(false);
    let order = |(one, _): &(Vec<Value>, Value), (other, _): &(Vec<Value>, Value)| {
        let mut orders = one.iter().zip(other).map(|(a, b)| {
            let by_number = template_value::compare(a, b);
            by_number.unwrap_or_else(|| a.kind().cmp(&b.kind()).then_with(|| a.cmp(b)))
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    Ok(Some(match name {
        "min" => items.into_iter().min_by(order).map(|(_, item)| item).unwrap_or_default(),
        // Of several that are the largest, the first.
        "max" => items.into_iter().rev().max_by(order).map(|(_, item)| item).unwrap_or_default(),
        "sort" => {
            items.sort_by(|a, b| if is_reverse { order(b, a) } else { order(a, b) });
            items.into_iter().map(|(_, item)| item).collect()
        }
        _ => {
            // In order, those that are equal are neighbours.
            let mut places: Vec<usize> = (0..items.len()).collect();
            let at = |place: &usize| items.get(*place);
            places.sort_by(|a, b| {
                let a = at(a);
                let b = at(b);
                a.zip(b).map_or(Ordering::Equal, |(a, b)| order(a, b))
            });
            places.dedup_by(|a, b| at(a).zip(at(b)).is_some_and(|(a, b)| order(a, b).is_eq()));
            places.sort_unstable();
            places.iter().filter_map(at).map(|(_, item)| item.clone()).collect()
        }
    }))
}

fn at_path(item: &Value, path: &str) -> Value {
    let step = |at: Value, part: &str| match part.parse::<usize>() {
        Ok(n) => at.get_item_by_index(n),
        Err(_not_a_number) => at.get_attr(part),
    };
    path.split('.').try_fold(item.clone(), step).unwrap_or_default()
}
