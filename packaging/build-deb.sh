#!/usr/bin/env bash
# Builds the Debian package from a release build: target/debian/oncebox_*.deb. Needs cargo-deb, libssl-dev and zlib1g-dev.
# Arguments are passed on to cargo-deb (--deb-version 0.1.0-2, …). DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."
binary=target/release/oncebox
made=target/packaging

cargo build --release --locked --features kafka
rm -rf "$made"
mkdir -p "$made/completions"
"$binary" manual "$made/man"
"$binary" completions bash > "$made/completions/oncebox"
"$binary" completions zsh  > "$made/completions/_oncebox"
"$binary" completions fish > "$made/completions/oncebox.fish"

package=$(cargo deb --no-build "$@" | tail -1)
if [ -n "${DEBFULLNAME:-}" ] && [ -n "${DEBEMAIL:-}" ]; then
  dpkg-deb -R "$package" "$made/deb"
  awk -v line="Maintainer: $DEBFULLNAME <$DEBEMAIL>" '/^Maintainer:/ { $0 = line } { print }' \
    "$made/deb/DEBIAN/control" > "$made/control"
  cat "$made/control" > "$made/deb/DEBIAN/control"
  dpkg-deb -b -Zxz --root-owner-group "$made/deb" "$package" > /dev/null
else
  echo "The maintainer is an example. Set DEBFULLNAME and DEBEMAIL before others install the package." >&2
fi
echo "$package"
