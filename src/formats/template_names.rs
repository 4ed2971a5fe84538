//! Names of filters and tests that a template uses: one that does not exist is found when the template is saved, not when
//! an event is sent.

use minijinja::machinery::{Instruction, Instructions};
use minijinja::{Environment, Value};

/// Filters that are given the name of a filter or a test, and at which of their arguments: `map('upper')`.
const CALLING: [(&str, &str, usize); 5] = [
    ("map", "filter", 0),
    ("select", "test", 0),
    ("reject", "test", 0),
    ("selectattr", "test", 1),
    ("rejectattr", "test", 1),
];

/// The first instruction with an unknown filter or test, and the mistake in words.
pub fn unknown(env: &Environment<'_>, code: &Instructions<'_>) -> Option<(u32, String)> {
    (0..).map_while(|n| code.get(n).map(|instruction| (n, instruction))).find_map(
        |(n, instruction)| {
            let name = match instruction {
                Instruction::ApplyFilter(name, count, _) => {
                    lacking(env, "filter", name).or_else(|| called(env, code, n, name, *count))
                }
                Instruction::PerformTest(name, ..) => lacking(env, "test", name),
                _ => None,
            };
            Some((n, name?))
        },
    )
}

/// What is wrong, if there is no filter or test of this name.
fn lacking(env: &Environment<'_>, kind: &str, name: &str) -> Option<String> {
    // The engine's tests `filter` and `test` tell whether there is one.
    let is_known = env.empty_state().perform_test(kind, &[Value::from(name)]);
    (!is_known.is_ok_and(|is_known| is_known)).then(|| format!("there is no {kind} {name}"))
}

/// The mistake in a filter or test named in constant arguments of a filter.
fn called(
    env: &Environment<'_>,
    code: &Instructions<'_>,
    at: u32,
    filter: &str,
    count: Option<u16>,
) -> Option<String> {
    let (_, kind, place) = CALLING.iter().find(|(name, ..)| *name == filter)?;
    // The value that is filtered counts as the first argument.
    let arguments = u32::from(count?).checked_sub(1)?;
    let constant = |n| match code.get(n) {
        Some(Instruction::LoadConst(value)) => Some(value),
        _ => None,
    };
    let constants: Vec<&Value> =
        (at.checked_sub(arguments)?..at).map(constant).collect::<Option<_>>()?;
    lacking(env, kind, constants.get(*place)?.as_str()?)
}
