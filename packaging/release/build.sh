#!/usr/bin/env bash
# Builds the programs and packages of one architecture. Runs in the room of room.sh, without a network:
#   build.sh ARCH PROFILE     ARCH is x86_64, aarch64 or armv7, which has no package
# Reads /release/source and /release/vendor, builds in /release/target, writes into /release/dist. What it writes does not
# depend on the machine, the directory or the hour: the paths are those of this room, and the time is that of the commit.
set -euo pipefail
arch=$1 profile=$2
# shellcheck source=/dev/null
source /release/facts # VERSION, ONCEBOX_COMMIT, SOURCE_DATE_EPOCH
export ONCEBOX_COMMIT SOURCE_DATE_EPOCH
case $arch in
  x86_64)  debian=amd64 triple=x86_64-unknown-linux-gnu compiler=x86_64-linux-gnu ;;
  aarch64) debian=arm64 triple=aarch64-unknown-linux-gnu compiler=aarch64-linux-gnu ;;
  armv7)   debian=armhf triple=armv7-unknown-linux-gnueabihf compiler=arm-linux-gnueabihf ;;
  *) echo "there is no architecture $arch: x86_64, aarch64 or armv7" >&2; exit 2 ;;
esac
readonly sysroot=/sysroot/$debian
# Cargo's folder of the profile dev has another name.
folder_of_profile=$profile
[[ $profile != dev ]] || folder_of_profile=debug
cd /release/source

# Build scripts look for the compiler by more than one name.
name=${triple//-/_}
export "CC_$name=gcc-$debian" "AR_$name=$compiler-ar" "CARGO_TARGET_${name^^}_LINKER=gcc-$debian"
# librdkafka asks for a compiler of C++, for a part that is not linked.
export CC=gcc-$debian CXX=$compiler-g++ AR=$compiler-ar RANLIB=$compiler-ranlib
export PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_SYSROOT_DIR=$sysroot PKG_CONFIG_LIBDIR=$sysroot/usr/lib/$compiler/pkgconfig
export CFLAGS=-ffile-prefix-map=/release/=
# Times of 64 bits for SQLite, for the years after 2038.
[[ $arch != armv7 ]] || CFLAGS+=" -D_TIME_BITS=64 -D_FILE_OFFSET_BITS=64"
# The linker warns of glibc's name service in a static program; src/sys/name_service.rs keeps to what is in it.
readonly rustflags="--remap-path-prefix=/release/=/ -Alinker_messages"

# build KIND STATIC [ARGUMENTS OF CARGO]: builds into /release/target/KIND.
build() {
  local kind=$1 static=$2
  export CARGO_TARGET_DIR=/release/target/$kind RUSTFLAGS="$rustflags -Ctarget-feature=${static}crt-static"
  # What Cargo has of an earlier commit is told by the age of files, which here is that of the commit.
  cargo clean --quiet --target "$triple" --profile "$profile" -p oncebox -p oncebox-odbc
  cargo build --quiet --locked --offline --target "$triple" --profile "$profile" "${@:3}"
}

# The oldest glibc that has all that a program asks for.
glibc() { "$compiler-objdump" --dynamic-syms "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -1; }

# Which libraries a program asks for, in a line.
libraries() { "$compiler-objdump" --private-headers "$1" | awk '$1 == "NEEDED" { print $2 }' | sort | xargs; }

# archive NAME: makes a .tar.gz of the directory NAME, whose bytes depend on its files alone.
archive() {
  tar --create --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u=rwX,go=rX "$1" |
    gzip --no-name --best
}

made=/release/target/documents
documents() {
  local program=/release/target/static/x86_64-unknown-linux-gnu/$folder_of_profile/oncebox
  [[ -x $program ]] || { echo "build x86_64 first: its program writes the manual" >&2; exit 1; }
  rm -rf "$made"
  mkdir -p "$made/completions"
  "$program" manual "$made/man"
  "$program" completions bash > "$made/completions/oncebox"
  "$program" completions zsh > "$made/completions/_oncebox"
  "$program" completions fish > "$made/completions/oncebox.fish"
}

mkdir -p /release/dist
build static +
documents
program=/release/target/static/$triple/$folder_of_profile/oncebox
"$compiler-objdump" --private-headers "$program" | grep -q NEEDED && { echo "$program is not static" >&2; exit 1; }
folder=oncebox-$VERSION-linux-$arch
work=$(mktemp -d)
mkdir -p "$work/$folder"/{man,completions,systemd,docs}
install -m 0755 "$program" "$work/$folder/oncebox"
cp "$made"/man/*.1 "$work/$folder/man/"
cp "$made"/completions/* "$work/$folder/completions/"
cp packaging/systemd/* packaging/oncebox.toml "$work/$folder/systemd/"
cp -r docs/*.md docs/*.svg docs/erp "$work/$folder/docs/"
cp README.md INSTALL.md CHANGELOG.md SECURITY.md LICENSE-MIT LICENSE-APACHE schema.sql "$work/$folder/"
(cd "$work" && archive "$folder") > "/release/dist/$folder.tar.gz"

# armv7 has no package.
[[ $arch != armv7 ]] || exit 0
build package - --features kafka
program=/release/target/package/$triple/$folder_of_profile/oncebox
wanted="ld-linux libc.so.6 libcrypto.so.3 libgcc_s.so.1 libm.so.6 libssl.so.3 libz.so.1"
for library in $(libraries "$program"); do
  grep -q "${library%%-[xa]*}" <<<"$wanted" || { echo "the package does not depend on $library" >&2; exit 1; }
done
[[ $(printf '%s\n' "$(glibc "$program")" GLIBC_2.34 | sort -V | tail -1) == GLIBC_2.34 ]] ||
  { echo "$program asks for $(glibc "$program"), and the package for libc6 (>= 2.34)" >&2; exit 1; }
rm -rf target/packaging
mkdir -p target
cp -r "$made" target/packaging
cargo deb --quiet --no-build --no-strip --locked --offline --target "$triple" --profile "$profile" --output "/release/dist/oncebox_$VERSION-1_$debian.deb"
build package - -p oncebox-odbc
cargo deb --quiet --no-build --no-strip --locked --offline --target "$triple" --profile "$profile" -p oncebox-odbc \
  --output "/release/dist/oncebox-odbc_$VERSION-1_$debian.deb"
