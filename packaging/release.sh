#!/usr/bin/env bash
# Makes a release of the commit that is checked out: dist/, which whoever publishes uploads as it is.
#   release.sh VERSION [ARCHITECTURE…]     default: x86_64 aarch64 armv7
# Its keys are named by the environment:
#   ONCEBOX_SIGNING_KEY   an SSH key (ssh-keygen -t ed25519), which signs SHA256SUMS
#   ONCEBOX_APT_KEY       an OpenPGP secret key in a file (gpg --export-secret-keys), which signs the apt repository
#   ONCEBOX_DOWNLOADS     the address that the folder is uploaded to, which install.sh and INSTALL.md name
# ONCEBOX_PROFILE=release builds faster and larger programs than the profile dist. Needs root, buildah, git, debootstrap and systemd-nspawn;
# a network until the sources are there, and none afterwards. The first run makes the room of release/room.sh.
set -euo pipefail
cd "$(dirname "$0")/.."
readonly room=$PWD/target/release-room dist=$PWD/dist profile=${ONCEBOX_PROFILE:-dist}

fail() { printf 'packaging/release.sh: %s\n' "$*" >&2; exit 1; }
step() { printf '\n== %s s: %s\n' "$SECONDS" "$*"; }

[[ $# -gt 0 ]] || fail "which version? packaging/release.sh VERSION"
version=$1
shift
[[ $# -gt 0 ]] || set -- x86_64 aarch64 armv7
[[ $EUID == 0 ]] || fail "it needs root, to make a Debian"
for tool in buildah debootstrap git systemd-nspawn; do
  command -v "$tool" >/dev/null || fail "it needs $tool"
done
for key in ONCEBOX_SIGNING_KEY ONCEBOX_APT_KEY; do
  [[ -r ${!key:-} ]] || fail "$key must name the file of a key (see the head of this script)"
done
[[ ${ONCEBOX_DOWNLOADS:-} == https://* ]] || fail "ONCEBOX_DOWNLOADS must be the address of the uploaded folder, https://…"
grep -qx "version = \"$version\"" Cargo.toml || fail "Cargo.toml has another version than $version"
[[ -z $(git status --porcelain) ]] || fail "there are changes that are not committed"

# inside COMMAND…: runs it in the room, without a network.
inside() {
  systemd-nspawn --quiet --register=no --keep-unit --pipe --private-network --directory "$room" \
    --bind="$work:/release" "$@"
}

step "the room"
[[ -e $room ]] || packaging/release/room.sh "$room"
readonly work=$PWD/target/release-work
mkdir -p "$work/target"

step "the sources of $(git rev-parse --short HEAD)"
rm -rf "$work"/{source,dist,keys} "$dist"
mkdir -p "$work"/{source,dist,keys}
git archive HEAD | tar --extract --directory "$work/source"
cat > "$work/facts" <<FACTS
VERSION=$version
ONCEBOX_COMMIT=$(git rev-parse HEAD)
SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
DOWNLOADS=${ONCEBOX_DOWNLOADS%/}
FACTS
systemd-nspawn --quiet --register=no --keep-unit --pipe --directory "$room" --bind="$work:/release" \
  --bind-ro=/etc/ssl/certs/ca-certificates.crt --chdir=/release/source --setenv=CARGO_HOME=/release/cargo cargo vendor --quiet --locked /release/vendor
cat > "$work/cargo/config.toml" <<VENDORED
[source.crates-io]
replace-with = "vendored"
[source.vendored]
directory = "/release/vendor"
VENDORED

for arch; do
  step "programs and packages for $arch"
  inside --setenv=CARGO_HOME=/release/cargo --setenv=HOME=/root bash /release/source/packaging/release/build.sh "$arch" "$profile"
done

step "the image"
packaging/release/image.sh "$work/dist" "$version" "$room/etc/ssl/certs/ca-certificates.crt" "$(git log -1 --format=%ct)"

step "the list of what is in them, the repository, sums and signatures"
install -m 0600 "$ONCEBOX_SIGNING_KEY" "$work/keys/ssh"
install -m 0600 "$ONCEBOX_APT_KEY" "$work/keys/apt"
inside --setenv=CARGO_HOME=/release/cargo bash /release/source/packaging/release/publish.sh
rm -rf "$work/keys"
mv "$work/dist" "$dist"
step "done: $dist"
(cd "$dist" && find . -type f -printf '%10s  %P\n' | sort -k2)
