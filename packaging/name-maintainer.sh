#!/usr/bin/env bash
# Writes the maintainer into a Debian package: DEBFULLNAME and DEBEMAIL name who that is.
set -euo pipefail
package=$1

if [ -z "${DEBFULLNAME:-}" ] || [ -z "${DEBEMAIL:-}" ]; then
  echo "The maintainer is an example. Set DEBFULLNAME and DEBEMAIL before others install the package." >&2
  exit 0
fi
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
dpkg-deb -R "$package" "$made/deb"
awk -v line="Maintainer: $DEBFULLNAME <$DEBEMAIL>" '/^Maintainer:/ { $0 = line } { print }' \
  "$made/deb/DEBIAN/control" > "$made/control"
cat "$made/control" > "$made/deb/DEBIAN/control"
dpkg-deb -b -Zxz --root-owner-group "$made/deb" "$package" > /dev/null
