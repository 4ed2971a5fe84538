#!/bin/sh
# Plays a newcomer on a fresh machine: from the install line to the first webhook that arrives at a target. Prints the seconds.
#   newcomer.sh DIRECTORY     the release's folder
# The target is written in what the system has: Perl on Debian, BusyBox's nc on Alpine.
set -eu
from=$1
home=$(mktemp -d)
service=
target=
end() {
  kill $service $target 2>/dev/null || true
  rm -rf "$home"
}
trap end EXIT
fail() { echo "newcomer: $*" >&2; exit 1; }

cd "$home"
if command -v perl >/dev/null; then
  # Answers each request with 200, once it has all of it.
  perl -MIO::Socket::INET -e '
    my $door = IO::Socket::INET->new(LocalAddr => "127.0.0.1:8099", Listen => 5, ReuseAddr => 1) or die $!;
    while (my $call = $door->accept) {
      my $length = 0;
      while (<$call>) { $length = $1 if /^content-length: *(\d+)/i; last if /^\r?$/ }
      read $call, my $body, $length;
      print $call "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
      close $call;
    }' &
else
  while :; do
    printf 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n' | nc -l -p 8099 -s 127.0.0.1 >/dev/null
  done &
fi
target=$!

began=$(date +%s)
sh "$from/install.sh" --program --from "$from"
oncebox=/usr/local/bin/oncebox
# It writes the settings, and waits for a service that has them. A machine where this is tried may be fuller than a newcomer's.
"$oncebox" setup --data "$home/data" --provider stripe --pii allow --target http://127.0.0.1:8099/in >setup.log 2>&1 &
setup=$!
until [ -e conf.d/setup.toml ]; do
  kill -0 "$setup" 2>/dev/null || { cat setup.log >&2; fail "setup ended early"; }
  sleep 0.1
done
ONCEBOX_DISK__RESERVE=0 "$oncebox" serve --data "$home/data" >serve.log 2>&1 &
service=$!
wait "$setup" || { cat setup.log serve.log >&2; fail "setup failed"; }
grep -q 'arrived: the target answered 200' setup.log || { cat setup.log >&2; fail "the sample did not arrive"; }
echo "newcomer: the first webhook arrived $(($(date +%s) - began)) s after the install line"
