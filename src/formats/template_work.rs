//! What the engine of templates does without paying for it: comparisons, look-ups by a key, filters with long arguments.
//!
//! The engine compares lists and objects as deep as they are, and texts as long as they are, for one step. Here lists and
//! objects are not compared, and texts are paid for by their length. Operators are instructions of the engine: in a
//! program that is run they are calls of tests.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs, from_args};
use minijinja::{Environment, Error, ErrorKind, State, Value, filters};

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

type Compare = fn(&Value, &Value) -> bool;

/// An operator's test, and the names of the same test in a template.
const COMPARISONS: [(&str, &[&str], Compare); 6] = [
    ("operator_eq", &["eq", "equalto", "=="], |a, b| a == b),
    ("operator_ne", &["ne", "!="], |a, b| a != b),
    ("operator_lt", &["lt", "lessthan", "<"], |a, b| a < b),
    ("operator_le", &["le", "<="], |a, b| a <= b),
    ("operator_gt", &["gt", "greaterthan", ">"], |a, b| a > b),
    ("operator_ge", &["ge", ">="], |a, b| a >= b),
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
            checked(state, name, &args).and_then(|()| filter.call(state, &args))
        };
        env.add_filter(name, call);
    }
}

/// A program that pays for what it compares and looks up.
pub fn paying<'e>(code: &Instructions<'e>) -> Instructions<'e> {
    let operator = |name| vec![Instruction::PerformTest(name, Some(2), NOT_KEPT)];
    let (mut parts, mut starts, mut length) = (Vec::new(), Vec::new(), 0_u32);
    for instruction in (0..).map_while(|n| code.get(n)) {
        let part = match instruction {
            Instruction::Eq => operator("operator_eq"),
            Instruction::Ne => operator("operator_ne"),
            Instruction::Lt => operator("operator_lt"),
            Instruction::Lte => operator("operator_le"),
            Instruction::Gt => operator("operator_gt"),
            Instruction::Gte => operator("operator_ge"),
            Instruction::In => operator(IN),
            // So that the formatter takes pay for it.
            Instruction::EmitRaw(text) => {
                vec![Instruction::LoadConst(Value::from(*text)), Instruction::Emit]
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
    value.as_str().map_or(0, str::len)
}

fn invalid(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, why.into())
}

/// Fails, with the name of what is undefined.
fn defined(value: &Value) -> Result<(), Error> {
    if value.is_undefined() { value.get_attr("").map(drop) } else { Ok(()) }
}

fn compared(state: &State<'_, '_>, a: &Value, b: &Value, test: Compare) -> Result<bool, Error> {
    if a.as_object().is_some() && b.as_object().is_some() {
        return Err(invalid("lists and objects cannot be compared; compare texts or numbers"));
    }
    pay(state, length(a).min(length(b)))?;
    Ok(test(a, b))
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
    if value.as_object().is_some() {
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
        if item.as_object().is_none() && compared(state, &item, &value, |a, b| a == b)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn sum(state: &State<'_, '_>, values: Value, kwargs: Kwargs) -> Result<Value, Error> {
    if kwargs.has("start") {
        return Err(invalid("the filter sum begins with 0"));
    }
    filters::sum(state, values, None, None, kwargs)
}

/// Why a value cannot be an argument.
fn refused(of: &str, value: &Value, may_be_list: bool) -> Option<Error> {
    if length(value) > MAX_ARGUMENT_BYTES {
        return Some(invalid(format!("the {of} has more than {MAX_ARGUMENT_BYTES} bytes")));
    }
    (value.as_object().is_some() && !may_be_list)
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
    let (mut items, mut bytes) = (1_usize, 0_usize);
    for item in value.try_iter()? {
        state.consume_fuel(1)?;
        let keys = attributes.iter().flat_map(|all| all.split(','));
        let keys = keys.map(|path| at_path(&item, path.trim()));
        for key in keys.chain(attributes.is_none().then(|| item.clone())) {
            if key.as_object().is_some() {
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

fn at_path(item: &Value, path: &str) -> Value {
    let step = |at: Value, part: &str| match part.parse::<usize>() {
        Ok(n) => at.get_item_by_index(n),
        Err(_not_a_number) => at.get_attr(part),
    };
    path.split('.').try_fold(item.clone(), step).unwrap_or_default()
}
