#!/usr/bin/env bash
# Renders docs/ as a site with search into target/site, by mdBook, and checks its links. Needs cargo and Python; the first run compiles mdBook.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly version=0.5.4 tools=$PWD/target/site-tools

[[ $("$tools/bin/mdbook" --version 2>/dev/null) == "mdbook v$version" ]] ||
  cargo install --quiet --locked --root "$tools" "mdbook@$version"
rm -rf target/site
"$tools/bin/mdbook" build packaging/site
python3 packaging/site/links.py target/site
