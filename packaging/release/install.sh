#!/bin/sh
# Installs Oncebox on this machine:
#   curl -fsSL https://downloads.oncebox.example/install.sh | sh
# On Debian and Ubuntu (amd64, arm64) the package with its service; elsewhere the static program as /usr/local/bin/oncebox.
# Every file is compared with SHA256SUMS, and SHA256SUMS with its signature where ssh-keygen is there.
#   --program         only the program, on Debian too
#   --prefix DIR      another place than /usr/local for the program
#   --from ADDRESS    another place than the one above: an https address, or a directory
set -eu
version=unreleased
signer=
from=https://downloads.oncebox.example
prefix=/usr/local
package=yes

fail() { echo "install.sh: $*" >&2; exit 1; }

while [ $# -gt 0 ]; do
  case $1 in
    --program) package=no ;;
    --prefix) [ $# -gt 1 ] || fail "--prefix needs a directory"; prefix=$2; shift ;;
    --from) [ $# -gt 1 ] || fail "--from needs an address or a directory"; from=$2; shift ;;
    *) fail "there is no option $1: --program, --prefix DIR, --from ADDRESS" ;;
  esac
  shift
done

case $(uname -s)-$(uname -m) in
  Linux-x86_64) arch=x86_64 debian=amd64 ;;
  Linux-aarch64 | Linux-arm64) arch=aarch64 debian=arm64 ;;
  Linux-armv7l | Linux-armv8l) arch=armv7 debian= ;;
  *) fail "there is no program for $(uname -s) on $(uname -m): x86_64, aarch64 and armv7 of Linux" ;;
esac
# The kernel may be a wider one than the system, as on a Raspberry Pi with a 32-bit system.
if [ "$arch" = aarch64 ] && [ "$(getconf LONG_BIT 2>/dev/null || echo 64)" = 32 ]; then
  arch=armv7 debian=
fi
command -v apt-get >/dev/null && command -v systemctl >/dev/null && [ -n "$debian" ] || package=no
[ $package = no ] || [ "$(id -u)" = 0 ] || fail "the package is installed by root: sudo sh, or --program --prefix ~/.local"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch FILE: puts a file of the release into $work, under its name alone.
fetch() {
  to=$work/${1##*/}
  case $from in
    /*) cp "$from/$1" "$to" || fail "$from has no $1" ;;
    https://*)
      if command -v curl >/dev/null; then
        curl -fsSL --proto '=https' -o "$to" "$from/$1" || fail "could not fetch $from/$1"
      elif command -v wget >/dev/null; then
        wget -q -O "$to" "$from/$1" || fail "could not fetch $from/$1"
      else
        fail "it needs curl or wget"
      fi ;;
    *) fail "--from must be an https address or an absolute directory, not $from" ;;
  esac
}

# check FILE: compares it with the list.
check() {
  listed=$(awk -v file="$1" '$2 == file { print $1 }' "$work/SHA256SUMS")
  [ -n "$listed" ] || fail "SHA256SUMS does not list $1"
  [ "$(sha256sum < "$work/${1##*/}" | cut -d' ' -f1)" = "$listed" ] ||
    fail "$1 is not the file that SHA256SUMS lists: nothing was installed. Fetch it again, or report it"
}

fetch SHA256SUMS
if [ -n "$signer" ] && command -v ssh-keygen >/dev/null; then
  fetch SHA256SUMS.sig
  echo "releases@oncebox namespaces=\"oncebox-release\" $signer" > "$work/allowed_signers"
  ssh-keygen -Y verify -f "$work/allowed_signers" -I releases@oncebox -n oncebox-release -s "$work/SHA256SUMS.sig" \
    < "$work/SHA256SUMS" >/dev/null 2>&1 || fail "the signature of SHA256SUMS is wrong: nothing was installed. Report it"
  signed=", signature checked"
else
  signed=", signature not checked: ssh-keygen is not here"
fi

if [ $package = yes ]; then
  file=oncebox_$version-1_$debian.deb
  fetch "apt/pool/$file"
  check "apt/pool/$file"
  # Not by dpkg: it does not bring what the package depends on. The user of apt reads the file.
  chmod 755 "$work"
  apt-get install -y -q "$work/$file"
else
  folder=oncebox-$version-linux-$arch
  fetch "$folder.tar.gz"
  check "$folder.tar.gz"
  tar -xzf "$work/$folder.tar.gz" -C "$work"
  mkdir -p "$prefix/bin" "$prefix/share/man/man1" || fail "cannot write to $prefix: run it as root, or with --prefix ~/.local"
  # In one step, so that a running program is not cut.
  cp "$work/$folder/oncebox" "$prefix/bin/.oncebox.new" || fail "cannot write to $prefix/bin"
  chmod 755 "$prefix/bin/.oncebox.new"
  mv "$prefix/bin/.oncebox.new" "$prefix/bin/oncebox"
  cp "$work/$folder"/man/*.1 "$prefix/share/man/man1/"
fi
echo "Oncebox $version is installed (sums compared$signed)."
if [ $package = yes ]; then
  echo "It runs as a service on http://127.0.0.1:8710. Copy /etc/oncebox/master.key to a safe place now."
else
  echo "Start it: $prefix/bin/oncebox serve"
fi
