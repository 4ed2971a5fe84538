#!/usr/bin/env bash
# Builds one static program that needs no libc of the machine: target/x86_64-unknown-linux-musl/release/oncebox.
# Needs musl-gcc (Debian: musl-tools) and Rust's standard library for musl (rustup target add).
# Arguments are passed on to cargo (--profile dev, …) in the place of --release.
set -euo pipefail
cd "$(dirname "$0")/.."
target=x86_64-unknown-linux-musl
[[ $# -gt 0 ]] || set -- --release
cargo build --locked --target "$target" "$@"
for binary in target/"$target"/{release,debug}/oncebox; do
  [[ -e $binary ]] || continue
  if readelf --program-headers "$binary" | grep -q INTERP; then
    echo "$binary wants a loader, so it is not static" >&2
    exit 1
  fi
  echo "static: $binary ($(stat -c %s "$binary") bytes)"
done
