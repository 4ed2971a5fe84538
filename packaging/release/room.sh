#!/usr/bin/env bash
# Makes the room that a release is built in: a Debian with Rust for three architectures, and for each of them the libraries of
# the oldest Debian that the program runs on. All of it comes from Debian and, for cargo-deb, from crates.io.
#   room.sh DIRECTORY
# Needs root, debootstrap, systemd-nspawn and a network. It takes three minutes and 5 GB.
set -euo pipefail
room=$1
readonly newest=sid oldest=bookworm mirror=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
readonly tools=apt-utils,ca-certificates,cargo,cargo-cyclonedx,g++,gcc,gnupg,jq,libc6-dev,lld,make,openssh-client,perl,pkgconf,rpm,rustc,xz-utils
readonly compilers=g++-aarch64-linux-gnu,gcc-aarch64-linux-gnu,gcc-arm-linux-gnueabihf
readonly libraries=libc6-dev,libssl-dev,unixodbc-dev,zlib1g-dev

inside() {
  systemd-nspawn --quiet --register=no --keep-unit --pipe --directory "$room.new" \
    --setenv DEBIAN_FRONTEND=noninteractive "$@"
}

rm -rf --one-file-system "$room.new"
mkdir -p "$(dirname "$room")"
debootstrap --variant=minbase --include="$tools,$compilers" "$newest" "$room.new" "$mirror"

# Rust's standard library for the other architectures. A mirror may be behind the date until which Debian's list is valid.
inside dpkg --add-architecture arm64
inside dpkg --add-architecture armhf
inside apt-get -qq -o Acquire::Check-Valid-Until=false update
inside apt-get -qq install --no-install-recommends libstd-rust-dev:arm64 libstd-rust-dev:armhf

for pair in amd64:x86_64-linux-gnu arm64:aarch64-linux-gnu armhf:arm-linux-gnueabihf; do
  arch=${pair%%:*} compiler=${pair#*:}-gcc tree=$room.new/sysroot/${pair%%:*}
  # Nothing is run of these trees, so that they need no second stage.
  debootstrap --foreign --variant=minbase --arch="$arch" --include="$libraries" "$oldest" "$tree" "$mirror"
  for package in "$tree"/var/cache/apt/archives/*.deb; do
    dpkg --extract "$package" "$tree"
  done
  rm -rf "$tree"/var/cache "$tree"/debootstrap
  # Links that begin at the root would lead out of the tree, to another glibc.
  find "$tree" -type l -lname '/*' -printf '%l\0%p\0' | while IFS= read -r -d '' to && IFS= read -r -d '' link; do
    ln --symbolic --relative --force --no-dereference "$tree$to" "$link"
  done
  # A compiler that sees these libraries alone. GNU's linker makes a program for arm that ends at its start, if it is larger than a
  # branch reaches: glibc calls a function of Thumb there whose address lacks the bit that says so (binutils 2.47.50).
  linker=
  [[ $arch != armhf ]] || linker=-fuse-ld=lld
  printf '#!/bin/sh\nexec %s --sysroot=/sysroot/%s %s "$@"\n' "$compiler" "$arch" "$linker" > "$room.new/usr/local/bin/gcc-$arch"
  chmod 755 "$room.new/usr/local/bin/gcc-$arch"
done

# crates.io as this machine reaches it, with the authorities that it trusts.
inside --bind-ro=/etc/ssl/certs/ca-certificates.crt cargo install --quiet --locked --root /usr/local cargo-deb --version "~3.8"
rm -rf "$room.new"/var/cache/apt "$room.new"/root/.cargo
mv "$room.new" "$room"
