#!/usr/bin/env bash
# Puts oncebox, oncebox-odbc and Debian's ODBC drivers into an image: target/oncebox-databases-image.tar, for `podman load` or
# `docker load`.
#   build-database-image.sh ONCEBOX [ONCEBOX-ODBC]   the program of a release's archive (packaging/release.sh), and by default
#                                                    oncebox-odbc of the profile dist (cargo build --profile dist -p oncebox-odbc)
# Both are for this machine, and oncebox-odbc for a glibc that is no newer than Debian 12's. Needs root, buildah, debootstrap, and
# a network. Debian is made anew each time, so that its drivers are the newest ones.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly suite=bookworm packages=ca-certificates,libodbc2,odbc-mariadb,odbc-postgresql,odbcinst,tdsodbc
program=${1:?which program? packaging/build-database-image.sh ONCEBOX}
helper=${2:-target/dist/oncebox-odbc}
readonly image=target/oncebox-databases-image.tar

[[ $EUID == 0 ]] || { echo "packaging/build-database-image.sh needs root, to make a Debian" >&2; exit 1; }
for tool in buildah debootstrap; do
  command -v "$tool" >/dev/null || { echo "packaging/build-database-image.sh needs $tool" >&2; exit 1; }
done
for file in "$program" "$helper"; do
  [[ -f $file ]] || { echo "$file is not there: build it first, see the head of packaging/build-database-image.sh" >&2; exit 1; }
done

context=$(mktemp -d)
trap 'rm -rf --one-file-system "$context"' EXIT
tree=$context/tree
# The mirror is the one that apt of this machine uses for the same Debian, where there is one.
# shellcheck disable=SC2016  # The dollars are apt's.
mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' 'Created-By: Packages' 2>/dev/null |
  awk -v suite=$suite '$2 == suite { print $1; exit }')
debootstrap --variant=minbase --include="$packages" "$suite" "$tree" ${mirror:+"$mirror"} > "$context/log" 2>&1 ||
  { tail -20 "$context/log" >&2; exit 1; }
echo 'oncebox:x:65532:65532::/var/lib/oncebox:/usr/sbin/nologin' >> "$tree/etc/passwd"
echo 'oncebox:x:65532:' >> "$tree/etc/group"
rm -rf "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/var/log/* \
  "$tree"/usr/share/{doc,info,locale,man}/*
tar --create --file "$context/debian.tar" --directory "$tree" --numeric-owner --one-file-system .
rm -rf --one-file-system "$tree"

install -m 0755 "$program" "$context/oncebox"
install -m 0755 "$helper" "$context/oncebox-odbc"
# A volume takes the owner of its directory from the image.
install -d -m 0700 "$context/data"
built=$(buildah --storage-driver vfs build --quiet --file packaging/Containerfile.databases "$context")
rm -f "$image"
buildah --storage-driver vfs push --quiet "$built" "docker-archive:$image:oncebox-databases:latest"
buildah --storage-driver vfs rmi "$built" >/dev/null
echo "image: $image ($(du -h "$image" | cut -f1))"
