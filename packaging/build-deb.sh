#!/usr/bin/env bash
# Builds the Debian package from a release build: target/debian/oncebox_*.deb. Needs cargo-deb.
# Arguments are passed on to cargo-deb (--deb-version 0.1.0-2, …).
set -euo pipefail
cd "$(dirname "$0")/.."
binary=target/release/oncebox
made=target/packaging

cargo build --release --locked
rm -rf "$made"
mkdir -p "$made/completions"
"$binary" manual "$made/man"
"$binary" completions bash > "$made/completions/oncebox"
"$binary" completions zsh  > "$made/completions/_oncebox"
"$binary" completions fish > "$made/completions/oncebox.fish"

# The settings as they are shipped: all defaults, but for where the package keeps things.
sed -e '/^\[database\]/,/^\[keys\]/ s|^# *\(directory = \)".*"|\1"/var/lib/oncebox"|' \
    -e 's|^# *\(master_key_file = \)".*"|\1"/etc/oncebox/master.key"|' \
    packaging/oncebox.toml > "$made/oncebox.toml"
for key in 'directory = "/var/lib/oncebox"' 'master_key_file = "/etc/oncebox/master.key"'; do
  grep -qx "$key" "$made/oncebox.toml" || { echo "packaging/oncebox.toml has no place for: $key" >&2; exit 1; }
done

cargo deb --no-build "$@"
