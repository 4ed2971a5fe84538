#!/usr/bin/env bash
# Tries a release as those do who download it: signature and sums, the programs, apt-get and install.sh on Debian 12 and 13.
#   check.sh DIRECTORY [ARCHITECTURE…]     default: x86_64 aarch64 armv7, those of other machines by qemu-user
# Needs root, buildah, debootstrap, and qemu-user-static with its entry in binfmt_misc for another machine's programs.
set -euo pipefail
dist=$(realpath "$1")
shift
[[ $# -gt 0 ]] || set -- x86_64 aarch64 armv7
here=$(dirname "$(realpath "$0")")
readonly dist here mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
work=$(mktemp -d)
trap 'rm -rf --one-file-system "$work"' EXIT

fail() { printf 'FAILED: %s\n' "$*" >&2; exit 1; }
step() { printf -- '-- %s s: %s\n' "$SECONDS" "$*"; }
# refused COMMAND…: it fails, and says so.
refused() { ! "$@" >"$work/said" 2>&1 || fail "was not refused: $*"; }

step "the signature is right, and so is each sum"
cd "$dist"
ssh-keygen -q -Y verify -f allowed_signers -I releases@oncebox -n oncebox-release -s SHA256SUMS.sig < SHA256SUMS
sha256sum --quiet --check SHA256SUMS
jq -e '(.components | length > 50) and any(.components[]; .name == "sqlite")' oncebox-*.cdx.json >/dev/null

for arch; do
  step "the program for $arch, in a tree that has nothing but it"
  tree=$work/$arch
  mkdir -p "$tree/tmp" "$tree/etc"
  tar -xzf "$dist"/oncebox-*-linux-"$arch".tar.gz -C "$work"
  cp "$work"/oncebox-*-linux-"$arch"/oncebox "$tree/"
  echo '127.0.0.1 localhost' > "$tree/etc/hosts"
  # Debian's default where its package of mDNS is installed. The library is not there, and must not be asked for.
  echo 'hosts: mdns4_minimal [NOTFOUND=return] resolve dns files' > "$tree/etc/nsswitch.conf"
  mkdir "$tree/proc" && mount -t proc proc "$tree/proc"
  chroot "$tree" /oncebox --version
  outcome=0
  chroot "$tree" /oncebox demo --invoices 200 --seed 1 >"$work/said" 2>&1 || outcome=$?
  umount "$tree/proc"
  grep -q '200 shipments, 0 lost, 0 duplicated' "$work/said" || outcome=1
  [[ $outcome == 0 ]] || { cat "$work/said" >&2; fail "the demo"; }
  grep 'shipments' "$work/said"
done

# This machine's half of the image, if there is an image.
image=$(compgen -G "$dist/oncebox-*-image.tar" || true)
if [[ -n $image ]]; then
  step "the image"
  version=$(basename "$image" -image.tar)
  store() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }
  box=$(store from --quiet "oci-archive:$image:${version#oncebox-}")
  store run --isolation chroot "$box" -- /usr/bin/oncebox --data /var/lib/oncebox keys new /var/lib/oncebox/master.key >"$work/said" ||
    { cat "$work/said" >&2; fail "the program of the image"; }
  store rm "$box" >/dev/null
fi

# debian SUITE ARCH: makes a tree.
debian() {
  debootstrap --variant=minbase --arch="$2" --include=ca-certificates,openssh-client,libnss-mdns,libnss-myhostname "$1" "$work/$1-$2" \
    "$mirror" > "$work/debootstrap" 2>&1 || { tail -20 "$work/debootstrap" >&2; fail "no Debian $1"; }
  mkdir "$work/$1-$2/dist"
}

# try SUITE ARCH: installs by apt-get from the repository, and by install.sh, and breaks a file.
try() {
  local tree=$work/$1-$2
  step "Debian $1 for $2"
  debian "$1" "$2"
  cp -r "$dist/." "$tree/dist/"
  inside() { chroot "$tree" env DEBIAN_FRONTEND=noninteractive "$@"; }
  # armv7 has no package.
  if [[ $2 != armhf ]]; then
    echo 'deb [signed-by=/dist/apt/oncebox.gpg] file:/dist/apt stable main' > "$tree/etc/apt/sources.list.d/oncebox.list"
    inside apt-get update -qq -o Acquire::Check-Valid-Until=false
    inside apt-get install -y -qq --no-install-recommends oncebox >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "apt-get install"; }
    inside oncebox --version
    inside dpkg --purge oncebox >/dev/null 2>&1
  fi
  # The static program beside a machine whose name service has libraries of its own.
  cp "$here/newcomer.sh" "$tree/newcomer.sh"
  inside sh /newcomer.sh /dist || fail "the newcomer on $1 for $2"
  inside /usr/local/bin/oncebox --version >/dev/null
  local outcome=0
  inside ONCEBOX_TOKEN=obx_none timeout 20 /usr/local/bin/oncebox status --server http://nowhere.invalid >"$work/said" 2>&1 || outcome=$?
  [[ $outcome -gt 0 && $outcome -lt 100 ]] || { cat "$work/said" >&2; fail "a name that does not exist ended it with $outcome"; }
  step "a file that was changed is refused"
  for archive in "$tree"/dist/*.tar.gz; do echo x >> "$archive"; done
  inside rm /usr/local/bin/oncebox
  refused inside sh /dist/install.sh --program --from /dist
  grep -q 'is not the file that SHA256SUMS lists: nothing was installed' "$work/said" || { cat "$work/said" >&2; fail "another reason"; }
  [[ ! -e $tree/usr/local/bin/oncebox ]] || fail "it was installed all the same"
  # Whoever changes the sums as well cannot sign them.
  (cd "$tree/dist" && sha256sum -- *.tar.gz > SHA256SUMS)
  refused inside sh /dist/install.sh --program --from /dist
  grep -q 'the signature of SHA256SUMS is wrong' "$work/said" || { cat "$work/said" >&2; fail "another reason"; }
  rm -rf --one-file-system "$tree"
}

for arch; do
  case $arch in
    x86_64) try bookworm amd64; try trixie amd64 ;;
    aarch64) try bookworm arm64 ;;
    armv7) try bookworm armhf ;;
  esac
done
step "all of it works"
