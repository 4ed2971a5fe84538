#!/usr/bin/env bash
# Builds the Debian package of oncebox-odbc: target/debian/oncebox-odbc_*.deb. Needs cargo-deb and unixodbc-dev.
# Arguments are passed on to cargo-deb (--deb-version 0.1.0-2, …). DEBFULLNAME and DEBEMAIL name the maintainer.
set -euo pipefail
cd "$(dirname "$0")/.."

package=$(cargo deb --locked --package oncebox-odbc "$@" | tail -1)
packaging/name-maintainer.sh "$package"
echo "$package"
