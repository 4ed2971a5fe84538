//! `oncebox user`, `oncebox session` and `oncebox console`: the people who use the console.

use crate::cli::prelude::*;
use crate::cli::remote::once;
use crate::sys::user;

/// The longest name of a user.
const MAX_NAME_CHARS: usize = 63;
const USER_VERBS: &[CommandRow] = &[
    command("list", "Users by name and role")
        .calls("listUsers")
        .flags(&[&[
            field("tenant").value("NAME"),
        ]]),
    command("show", "One user")
        .calls("getUser")
        .flags(&[&[
            field("tenant").value("NAME"),
        ]]),
    command("create", "Create a user; without a password the user logs in with one-time links (oncebox console link)")
        .calls("createUser")
        .flags(&[&[
            argument("name")
                .help("1 to 63 characters of a-z, 0-9 and -; the user logs in as tenant/name, one of the tenant default by the name alone"),
            field("role")
                .help("Permissions: read; operate (read, publish, retry, pause); admin (all)"),
            field("tenant").value("NAME"),
            field("password")
                .long("password-file")
                .value("FILE")
                .help("File with the password, 12 to 128 characters"),
        ]]),
    command("change", "Change a user; that ends the user's sessions")
        .calls("changeUser")
        .flags(&[&[
            field("role")
                .help("Permissions: read; operate (read, publish, retry, pause); admin (all)"),
            field("password")
                .long("password-file")
                .value("FILE")
                .help("File with the new password, 12 to 128 characters"),
            without("disabled"),
            own("disable").help("Keep the user from logging in"),
            own("enable").not(&["disable"]).help("Let the user log in again"),
            field("tenant").value("NAME"),
        ]])
        .online(change),
    command("delete", "Delete a user; that ends the user's sessions")
        .calls("deleteUser")
        .flags(&[&[
            field("tenant").value("NAME"),
        ]])
        .asks("Delete the user {name}")
        .says("deleted: {name}"),
];

pub(super) const USER: Commands =
    Commands::new(&USERS, command("user", "People who use the console"), USER_VERBS);

const SESSION_VERBS: &[CommandRow] = &[
    command("list", "Who is logged in to the console")
        .calls("listSessions")
        .flags(&[&[field("tenant").value("NAME")]]),
    command("end", "End a session: whoever uses it has to log in again")
        .calls("endSession")
        .flags(&[&[field("tenant").value("NAME")]])
        .asks("End the session {id}")
        .says("ended: {id}"),
];

pub(super) const SESSION: Commands = Commands::new(
    &SESSIONS,
    command("session", "Who is logged in to the console: list, end"),
    SESSION_VERBS,
);

const CONSOLE_VERBS: &[CommandRow] = &[
    command("link", "Print a link that logs a user in, once and within 15 minutes; creates the user if there is none of that name")
        .calls("createLoginLink")
        .flags(&[&[
            without("name"),
            field("tenant").value("NAME"),
        ]])
        .online(print_link)
        .more(LinkArgs::augment_args),
];

pub(super) const CONSOLE: Commands = Commands::new(
    &USERS,
    command("console", "The console in a browser: a link that logs you in"),
    CONSOLE_VERBS,
);

#[derive(Debug, Args)]
struct LinkArgs {
    /// The user's name [default: your name on this machine]
    #[arg(long, value_name = "NAME")]
    user: Option<String>,
    /// Permissions of a user that is created
    #[arg(long, default_value = "admin", value_parser = ["read", "operate", "admin"])]
    role: String,
}

const USERS: Noun = Noun::new("/v1/users", "User", "users")
    .columns(&[
        column("NAME", 0, "name"),
        column("ROLE", 1, "role"),
        column("LAST LOGIN (UTC)", 2, "last_login_at"),
        column("DISABLED (UTC)", 2, "disabled_at"),
        column("CREATED (UTC)", 4, "created_at"),
    ])
    .fields(&[
        cell("tenant", "tenant"),
        cell("role", "role"),
        cell("password", "has_password"),
        time("last login", "last_login_at"),
        time("disabled since", "disabled_at"),
        time("created", "created_at"),
    ])
    .time("created_at");

const SESSIONS: Noun = Noun::new("/v1/sessions", "Session", "sessions")
    .columns(&[
        column("ID", 0, "id"),
        column("USER", 1, "user"),
        column("ADDRESS", 1, "address"),
        column("LAST USED (UTC)", 2, "last_used_at"),
        column("ENDS (UTC)", 3, "ends_at"),
        column("BROWSER", 4, "user_agent"),
    ])
    .time("created_at");

fn change(call: &Call<'_>, remote: &Remote) -> Done {
    let mut body = call.body()?;
    if call.is("disable") || call.is("enable") {
        body.insert("disabled".to_owned(), call.is("disable").into());
    }
    call.print(remote, call.changed(remote, body)?)
}

fn print_link(call: &Call<'_>, remote: &Remote) -> Done {
    let LinkArgs { user, role } = call.flags()?;
    let name = user.unwrap_or_else(|| name_from(&user::name()));
    let path = with_query(&format!("{}/link", USERS.at(&name)), &call.query());
    let link = match remote.post(&path, None) {
        Err(failure) if failure.code == exit::NOT_FOUND => {
            let tenant = call.has("tenant").then(|| call.text("tenant"));
            let body = json!({ "name": name, "role": role, "tenant": tenant });
            remote.post(USERS.path, Some(&body))?;
            out::note(format_args!("The user {name} was created with the role {role}."));
            remote.post(&path, None)?
        }
        answer => answer?,
    };
    if remote.json() {
        return out::json(&link);
    }
    out::line(once(&link, "url")?)?;
    out::note(format_args!("It logs in {name}, once and until {}.", text(&link, "expires_at")));
    Ok(())
}

/// A user's name on this machine as a name here; `admin` if nothing of it can stay.
fn name_from(login: &str) -> String {
    let kept = |c: char| {
        let c = c.to_ascii_lowercase();
        if c.is_ascii_lowercase() || c.is_ascii_digit() { c } else { '-' }
    };
    let name: String = login.chars().map(kept).take(MAX_NAME_CHARS).collect();
    let name = name.trim_matches('-');
    if name.is_empty() { "admin".to_owned() } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_name_becomes_a_name() {
        for (login, name) in
            [("root", "root"), ("Anna.Kiss", "anna-kiss"), ("_ß_", "admin"), ("", "admin")]
        {
            assert_eq!(name_from(login), name);
        }
    }
}
