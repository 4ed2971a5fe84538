#!/usr/bin/env bash
# Puts the static programs of a release into one OCI image for x86-64 and arm64: DIRECTORY/oncebox-VERSION-image.tar, an OCI layout.
#   image.sh DIRECTORY VERSION CERTIFICATES EPOCH
# The bytes follow from these four and the Containerfile. Needs buildah; without an archive of either machine it makes nothing.
set -euo pipefail
directory=$(realpath "$1") version=$2 certificates=$(realpath "$3") epoch=$4
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# A store of its own, so that nothing of this machine goes along, and nothing stays.
store() { buildah --storage-driver vfs --root "$work/store" --runroot "$work/run" "$@"; }

images=()
for machine in x86_64:amd64 aarch64:arm64; do
  archive=$directory/oncebox-$version-linux-${machine%:*}.tar.gz
  [[ -e $archive ]] || continue
  context=$work/${machine#*:}
  install -d "$context"
  # A volume takes the owner of its directory from the image.
  install -d -m 0700 "$context/data"
  tar --extract --file "$archive" --directory "$context" --strip-components=1 --wildcards '*/oncebox'
  cp "$certificates" "$context/ca-certificates.crt"
  images+=("$(store build --quiet --timestamp "$epoch" --identity-label=false --arch "${machine#*:}" --file packaging/Containerfile \
    --label "org.opencontainers.image.title=oncebox" --label "org.opencontainers.image.version=$version" "$context")")
done
[[ ${#images[@]} -gt 0 ]] || exit 0

store manifest create oncebox "${images[@]}" >/dev/null
store manifest push --quiet --all oncebox "oci:$work/layout:$version"
tar --create --file "$directory/oncebox-$version-image.tar" --directory "$work/layout" \
  --sort=name --mtime="@$epoch" --owner=0 --group=0 --numeric-owner --format=gnu .
