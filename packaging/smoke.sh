#!/usr/bin/env bash
# Plays an administrator's story (smoke/story.sh) under a real systemd: a Debian 12 is made by debootstrap, booted
# by systemd-nspawn, and deleted afterwards. This machine itself is not changed. Needs root, cargo-deb, debootstrap,
# lintian, systemd-nspawn (systemd-container), unixodbc-dev and a network on the first run, after which the tree is kept in target/.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly suite=bookworm packages=ca-certificates,curl,libodbc2,man-db,nginx-light,odbc-mariadb,odbc-postgresql,openssl,postgresql,python3,systemd,systemd-sysv,tdsodbc
readonly home=$PWD/target/smoke
readonly tree=$home/$suite-$packages box=$home/box

step() { printf '\n-- %s s: %s\n' "$SECONDS" "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }

[[ $EUID == 0 ]] || { echo "skipped: packaging/smoke.sh needs root, to boot a machine of its own"; exit 0; }
for tool in cargo-deb debootstrap lintian nsenter systemd-nspawn; do
  command -v "$tool" >/dev/null || { echo "packaging/smoke.sh needs $tool" >&2; exit 1; }
done

# A stop of nspawn shuts its machine down.
nspawn=
clean_up() {
  [[ -z $nspawn ]] || { kill "$nspawn" 2>/dev/null && wait "$nspawn"; } || true
  rm -rf --one-file-system "$box"
}
trap clean_up EXIT

# The mirror is the one that apt of this machine uses for the same Debian, where there is one.
debian() {
  local mirror
  # shellcheck disable=SC2016  # The dollars are apt's.
  mirror=$(apt-get indextargets --format '$(SITE) $(CODENAME)' 'Created-By: Packages' |
    awk -v suite=$suite '$2 == suite { print $1; exit }')
  rm -rf --one-file-system "$tree.new"
  debootstrap --foreign --variant=minbase --include="$packages" "$suite" "$tree.new" ${mirror:+"$mirror"}
  # A tree that is cut off is made again, so that no file needs to be synced by itself.
  echo force-unsafe-io > "$tree.new/etc/dpkg/dpkg.cfg.d/unsafe-io"
  chroot "$tree.new" /debootstrap/debootstrap --second-stage
  rm -rf "$tree.new"/var/cache/apt/archives/*.deb "$tree.new"/var/lib/apt/lists/* "$tree.new/etc/dpkg/dpkg.cfg.d/unsafe-io"
  mv "$tree.new" "$tree"
}

step "the packages are built for a maintainer, and lintian has no errors"
mkdir -p "$home"
export DEBFULLNAME="Kim & Sons" DEBEMAIL=kim@example.com
packaging/build-deb.sh --fast --compress-system --output "$home/oncebox.deb" >/dev/null
[[ $(dpkg-deb --field "$home/oncebox.deb" Maintainer) == "$DEBFULLNAME <$DEBEMAIL>" ]] || fail "another maintainer"
lintian --fail-on error --tag-display-limit 0 "$home/oncebox.deb"
packaging/build-odbc-deb.sh --fast --compress-system --output "$home/oncebox-odbc.deb" >/dev/null
lintian --fail-on error --tag-display-limit 0 "$home/oncebox-odbc.deb"

step "a Debian machine of its own is made"
[[ -e $tree ]] || debian > "$home/debootstrap.log" 2>&1 || { tail -20 "$home/debootstrap.log" >&2; fail "no Debian"; }
rm -rf --one-file-system "$box"
cp -a "$tree" "$box"
# The same again under a later version: an upgrade.
dpkg-deb --raw-extract "$home/oncebox.deb" "$box/root/newer"
sed -i 's/^Version: .*/Version: 9.9.9-1/' "$box/root/newer/DEBIAN/control"
# With another socket unit, which must not close the socket that is open.
find "$box/root/newer" -name oncebox.socket -exec sed -i 's/^Backlog=.*/Backlog=2048/' {} +
dpkg-deb --build -Znone "$box/root/newer" "$box/root/newer.deb" >/dev/null
rm -r "$box/root/newer"
cp "$home/oncebox.deb" "$home/oncebox-odbc.deb" "$box/root/"

step "it boots"
systemd-nspawn --quiet --boot --directory "$box" --register=no --keep-unit --private-network --console=pipe \
  --hostname=smoke --bind-ro="$PWD:/source" </dev/null >"$home/console.log" 2>&1 &
nspawn=$!
inside() { nsenter --target "$leader" --all env --ignore-environment HOME=/root LANG=C.UTF-8 PATH="$PATH" "$@"; }
leader=
for ((tries = 0; tries < 600; tries++)); do
  leader=$(cat "/proc/$nspawn/task/$nspawn/children" 2>/dev/null || true) leader=${leader%% *}
  [[ -z $leader ]] || ! inside systemctl is-system-running --wait >/dev/null 2>&1 || break
  kill -0 "$nspawn" 2>/dev/null || { cat "$home/console.log" >&2; fail "systemd-nspawn ended"; }
  sleep 0.1
done
inside systemctl is-system-running

inside /source/packaging/smoke/story.sh
