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

cargo deb --no-build "$@"
