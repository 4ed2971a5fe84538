#!/usr/bin/env bash
# Puts the static program into an image: target/oncebox-image.tar, for `podman load` or `docker load`.
#   build-image.sh PROGRAM   the program of a release's archive (packaging/release.sh)
# Needs buildah, and the machine's ca-certificates, which go along.
set -euo pipefail
cd "$(dirname "$0")/.."
program=${1:?which program? packaging/build-image.sh PROGRAM}
case $(file --brief "$program") in
  *aarch64*) arch=arm64 ;;
  *x86-64*)  arch=amd64 ;;
  *) echo "$program is no program for x86-64 or arm64" >&2; exit 1 ;;
esac
context=$(mktemp -d)
trap 'rm -rf "$context"' EXIT
cp "$program" "$context/oncebox"
cp /etc/ssl/certs/ca-certificates.crt "$context/"
# A volume takes the owner of its directory from the image.
install -d -m 0700 "$context/data"
image=$(buildah --storage-driver vfs build --quiet --arch "$arch" --file packaging/Containerfile "$context")
rm -f target/oncebox-image.tar
buildah --storage-driver vfs push --quiet "$image" docker-archive:target/oncebox-image.tar:oncebox:latest
echo "image: target/oncebox-image.tar ($arch)"
