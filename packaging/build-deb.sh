#!/usr/bin/env bash
# Builds the Debian package with the program of the profile `dist`: target/debian/oncebox_*.deb. Needs cargo-deb, libssl-dev and zlib1g-dev.
# Arguments are passed on to cargo-deb (--deb-version 0.1.0-2, …). DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=target/dist/oncebox
made=target/packaging

cargo build --profile dist --locked --features kafka
rm -rf "$made"
mkdir -p "$made/completions"
"$binary" manual "$made/man"
"$binary" completions bash > "$made/completions/oncebox"
"$binary" completions zsh  > "$made/completions/_oncebox"
"$binary" completions fish > "$made/completions/oncebox.fish"

package=$(cargo deb --no-build "$@" | tail -1)
packaging/name-maintainer.sh "$package"
echo "$package"
