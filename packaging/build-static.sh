#!/usr/bin/env bash
# Builds one static program that needs no libc of the machine: target/TARGET/dist/oncebox.
#   build-static.sh [x86_64|aarch64] [ARGUMENTS OF CARGO IN THE PLACE OF --profile dist]
# Needs musl-gcc for x86_64 (Debian: musl-tools), or a C compiler with headers for aarch64 (gcc-aarch64-linux-gnu,
# libc6-dev-arm64-cross), make for the allocator, and Rust's standard library for musl (rustup target add).
set -euo pipefail
cd "$(dirname "$0")/.."
arch=x86_64
[[ ${1:-} == x86_64 || ${1:-} == aarch64 ]] && { arch=$1; shift; }
target=$arch-unknown-linux-musl
[[ $# -gt 0 ]] || set -- --profile dist
# Kernels for aarch64 have pages of 4, 16 or 64 KiB; the allocator works with pages of at most this size.
[[ $arch == aarch64 ]] && export JEMALLOC_SYS_WITH_LG_PAGE=16
if [[ $arch != "$(uname -m)" ]]; then
  # Rust brings the libc that is linked; of the compiler only C and the linker are used. What glibc's headers put in the
  # place of plain functions, musl does not have.
  export CC_aarch64_unknown_linux_musl=aarch64-linux-gnu-gcc
  export CFLAGS_aarch64_unknown_linux_musl="-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=0 -DSQLITE_DISABLE_LFS"
  export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=aarch64-linux-gnu-gcc
fi
cargo build --locked --target "$target" "$@"
for binary in target/"$target"/{dist,release,debug}/oncebox; do
  [[ -e $binary ]] || continue
  if readelf --program-headers "$binary" | grep -q INTERP; then
    echo "$binary wants a loader, so it is not static" >&2
    exit 1
  fi
  echo "static: $binary ($(stat -c %s "$binary") bytes)"
done
