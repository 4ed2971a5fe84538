#!/usr/bin/env bash
# Adds to /release/dist what others check the programs with: the list of what is in them (SBOM), an apt repository, INSTALL.md and
# install.sh with their address, sums, signatures and public keys. Runs in the room of room.sh, after build.sh.
set -euo pipefail
# shellcheck source=/dev/null
source /release/facts # VERSION, ONCEBOX_COMMIT, SOURCE_DATE_EPOCH, DOWNLOADS
export SOURCE_DATE_EPOCH
readonly dist=/release/dist source=/release/source namespace=oncebox-release
readonly sbom=$dist/oncebox-$VERSION.cdx.json
date=$(date --utc --date="@$SOURCE_DATE_EPOCH" +%FT%TZ)

# The crates, two parts that crates bring along (SQLite as C, and BoringSSL's assembly in ring), and what the static program has of Debian.
(cd "$source" && cargo cyclonedx --quiet --format json --spec-version 1.5 --features kafka --override-filename sbom)
sqlite=$(sed -n 's/^#define SQLITE_VERSION  *"\(.*\)"/\1/p' /release/vendor/libsqlite3-sys/sqlite3/sqlite3.h)
glibc=$(zcat /sysroot/amd64/usr/share/doc/libc6/changelog.Debian.gz | sed -n '1s/.*(\(.*\)).*/\1/p')
ring=$(sed -n 's/^version = "\(.*\)"/\1/p' /release/vendor/ring/Cargo.toml | head -1)
jq --arg date "$date" --arg commit "$ONCEBOX_COMMIT" --arg sqlite "$sqlite" --arg ring "$ring" --arg glibc "$glibc" '
  del(.serialNumber) | .metadata.timestamp = $date
  | .metadata.properties = ((.metadata.properties // []) + [{ name: "commit", value: $commit }])
  | .components += [
      { type: "library", name: "sqlite", version: $sqlite, "bom-ref": "sqlite", purl: "pkg:generic/sqlite@\($sqlite)",
        licenses: [{ license: { name: "Public Domain" } }], description: "Bundled as C by libsqlite3-sys" },
      { type: "library", name: "boringssl", version: "as in ring \($ring)", "bom-ref": "boringssl",
        licenses: [{ license: { id: "ISC" } }], description: "C and assembly of BoringSSL, bundled by ring" },
      { type: "library", name: "glibc", version: $glibc, "bom-ref": "glibc", licenses: [{ license: { id: "LGPL-2.1-or-later" } }],
        description: "Linked into the static programs; its source is the package glibc of Debian 12" }
    ]' "$source/sbom.json" > "$sbom"

# An apt repository of one suite.
if compgen -G "$dist/*.deb" >/dev/null; then
  export GNUPGHOME=/tmp/gnupg
  rm -rf "$GNUPGHOME"
  install -d -m 0700 "$GNUPGHOME"
  gpg --quiet --batch --import /release/keys/apt
  mkdir -p "$dist/apt/pool" "$dist"/apt/dists/stable/main/binary-{amd64,arm64}
  mv "$dist"/*.deb "$dist/apt/pool/"
  cd "$dist/apt"
  for arch in amd64 arm64; do
    apt-ftparchive --arch "$arch" packages pool > "dists/stable/main/binary-$arch/Packages"
    gzip --keep --no-name "dists/stable/main/binary-$arch/Packages"
  done
  apt-ftparchive -o APT::FTPArchive::Release::Suite=stable -o APT::FTPArchive::Release::Codename=stable \
    -o APT::FTPArchive::Release::Architectures="amd64 arm64" -o APT::FTPArchive::Release::Components=main \
    -o APT::FTPArchive::Release::Origin=Oncebox release dists/stable > Release
  sed "s/^Date:.*/Date: $(date --utc --date="@$SOURCE_DATE_EPOCH" '+%a, %d %b %Y %T +0000')/" Release > dists/stable/Release
  rm Release
  gpg --quiet --batch --yes --clearsign --output dists/stable/InRelease dists/stable/Release
  gpg --quiet --batch --yes --export > oncebox.gpg
fi

for file in INSTALL.md packaging/release/install.sh; do
  sed -e "s|https://downloads.oncebox.example|$DOWNLOADS|g" -e "s|^version=.*|version=$VERSION|" "$source/$file" > "$dist/${file##*/}"
done
chmod +x "$dist/install.sh"

# What is new: the topmost section of the changelog.
{
  printf '# Oncebox %s\n\nBefore an upgrade: docs/operating.md, "Upgrade and removal".\n' "$VERSION"
  awk '/^## / { sections++ } sections == 1 && !/^## /' "$source/CHANGELOG.md"
} > "$dist/NOTES.md"

# The key's public half goes into install.sh, which checks the signature where ssh-keygen is there, and the sums always.
public=$(ssh-keygen -y -f /release/keys/ssh)
echo "releases@oncebox namespaces=\"$namespace\" $public" > "$dist/allowed_signers"
sed -i "s|^signer=.*|signer='$(cut -d' ' -f1,2 <<<"$public")'|" "$dist/install.sh"
cd "$dist"
find . -type f ! -name 'SHA256SUMS*' -printf '%P\0' | sort --zero-terminated | xargs --null sha256sum > SHA256SUMS
ssh-keygen -q -Y sign -f /release/keys/ssh -n "$namespace" SHA256SUMS
ssh-keygen -Y verify -f allowed_signers -I releases@oncebox -n "$namespace" -s SHA256SUMS.sig < SHA256SUMS
