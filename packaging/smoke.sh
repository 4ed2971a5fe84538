#!/usr/bin/env bash
# An administrator's story on a Debian machine, with the real tools: build the package, install it, start it
# as its unit says, take a webhook through nginx, back up under load, lose the disk, restore, upgrade,
# remove, purge. It installs into this machine and takes everything away again, so it wants root and a
# machine that has no Oncebox. Needs: cargo-deb, lintian, nginx, openssl, python3.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
readonly work data=/var/lib/oncebox log=/tmp/oncebox-unit.log
readonly api=http://127.0.0.1:8710 key=/etc/oncebox/master.key

step() { printf '\n-- %s\n' "$*"; }
fail() { printf 'FAILED: %s\n' "$*" >&2; tail -20 "$log" "$log.out" >&2 2>/dev/null || true; exit 1; }

# wait_for SECONDS WHAT COMMAND…: until the command succeeds.
wait_for() {
  local until=$((SECONDS + $1)) what=$2
  shift 2
  until "$@" >/dev/null 2>&1; do
    ((SECONDS < until)) || fail "waited in vain for: $what"
    sleep 0.05
  done
}

# expect PATTERN COMMAND…: its output (stdout and stderr) matches, whatever it exits with.
expect() {
  local pattern=$1 out
  shift
  out=$("$@" 2>&1) || true
  grep -qE -- "$pattern" <<<"$out" || fail "$*: expected /$pattern/, got: $out"
}

# exits CODE COMMAND…
exits() {
  local want=$1 code=0
  shift
  "$@" >"$work/out" 2>&1 || code=$?
  [[ $code == "$want" ]] || fail "$*: expected exit $want, got $code: $(cat "$work/out")"
}

# A command as the service's user, with the key it is given.
as_service() {
  ONCEBOX_MASTER_KEY=$(cat $key) setpriv --reuid oncebox --regid oncebox --clear-groups "$@"
}

# Runs a block of docs/operating.md as it stands there.
tried() {
  awk -v name="<!-- tried: $1 -->" '$0 == name { found = 1; next } found && /^```$/ { exit } found && !/^```/' \
    docs/operating.md > "$work/tried.sh"
  [[ -s $work/tried.sh ]] || fail "docs/operating.md has no block named $1"
  bash -euo pipefail "$work/tried.sh"
}

mode() { stat -c '%a %U:%G' "$1"; }
logged() { grep -q "$1" "$log"; }
start() { python3 packaging/smoke/run_unit.py /lib/systemd/system/oncebox.{service,socket} "$log" & runner=$!; }
stop() { kill -TERM "$runner"; wait "$runner" || fail "the service did not stop cleanly"; runner=; }
runner='' nginx_pid='' loader=''

clean_up() {
  [[ -z $loader ]] || kill "$loader" 2>/dev/null || true
  [[ -z $runner ]] || { kill -TERM "$runner" 2>/dev/null; wait "$runner" 2>/dev/null; } || true
  [[ -z $nginx_pid ]] || kill "$nginx_pid" 2>/dev/null || true
  dpkg --purge oncebox >/dev/null 2>&1 || true
  rm -rf "$work" "$data" /etc/oncebox /run/credentials/oncebox.service /run/oncebox-notify /var/backups/oncebox
  userdel oncebox 2>/dev/null || true
}

[[ $EUID == 0 ]] || { echo "skipped: packaging/smoke.sh needs root, to install the package"; exit 0; }
[[ ! -e $data && ! -e /etc/oncebox && ! -e /var/backups/oncebox ]] || { echo "there is an Oncebox on this machine; this would destroy it" >&2; exit 1; }
for tool in cargo-deb lintian nginx openssl python3; do
  command -v "$tool" >/dev/null || { echo "packaging/smoke.sh needs $tool" >&2; exit 1; }
done
trap clean_up EXIT
rm -f "$log" "$log.out"

step "the package is built, and lintian has no errors"
packaging/build-deb.sh --output "$work/oncebox.deb" >/dev/null
lintian --fail-on error --tag-display-limit 0 "$work/oncebox.deb"

step "dpkg -i"
dpkg -i "$work/oncebox.deb"
[[ $(mode $key) == '600 root:root' ]] || fail "$key is $(mode $key)"
getent passwd oncebox >/dev/null || fail "no user oncebox"
expect 'oncebox 0' oncebox --version
expect 'Run the service' man oncebox-serve
[[ -e /usr/share/bash-completion/completions/oncebox ]] || fail "no completions"

step "the unit: systemd-analyze verify is clean, and its exposure is at most 1.5"
systemd-analyze verify /lib/systemd/system/oncebox.service
systemd-analyze security --offline=true --threshold=15 --no-pager /lib/systemd/system/oncebox.service | tail -1

# A machine where this is tried may be fuller than one that keeps invoices.
sed -i -e 's|^# *reserve = .*|reserve = "64MiB"|' -e 's|^# *allow = .*|allow = ["127.0.0.0/8"]|' /etc/oncebox/oncebox.toml
oncebox config check

step "it starts as the unit says, and says READY and WATCHDOG"
start
wait_for 20 READY logged '^READY 1'
grep '^READY' "$log"
[[ $(mode $data) == '700 oncebox:oncebox' ]] || fail "$data is $(mode $data)"
[[ $(mode $data/oncebox.db) == '600 oncebox:oncebox' ]] || fail "the database is $(mode $data/oncebox.db)"
[[ ! -e $data/master.key ]] || fail "the key is in the data directory"
expect 'runs and is ready' oncebox status
exits 75 as_service oncebox serve --data $data --listen 127.0.0.1:0
expect "$(pgrep -u oncebox -x oncebox | head -1)" cat "$work/out"
wait_for 40 WATCHDOG logged '^WATCHDOG 1'

step "a webhook signed as Stripe signs comes through nginx"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hooks.example.com \
  -keyout "$work/nginx.key" -out "$work/nginx.pem" 2>/dev/null
sed -e "s|/etc/ssl/certs/hooks.example.com.pem|$work/nginx.pem|" \
    -e "s|/etc/ssl/private/hooks.example.com.key|$work/nginx.key|" \
    -e 's|listen 443 ssl|listen 127.0.0.1:8443 ssl|' packaging/nginx.conf > "$work/site.conf"
printf 'daemon off; pid %s; error_log %s;\nevents {}\nhttp { access_log off; include %s; }\n' \
  "$work/nginx.pid" "$work/nginx.log" "$work/site.conf" > "$work/nginx.conf"
nginx -e "$work/nginx.log" -c "$work/nginx.conf" & nginx_pid=$!
sed -i 's|^# *trusted_proxies = .*|trusted_proxies = ["127.0.0.1/32"]|' /etc/oncebox/oncebox.toml
sed -i '0,/^# *public_url = /s|^# *public_url = .*|public_url = "https://hooks.example.com"|' /etc/oncebox/oncebox.toml
oncebox config check
expect 'public_url.*hooks.example.com.*oncebox.toml' oncebox config show
kill -HUP "$runner"
wait_for 10 RELOADING logged '^RELOADING'
wait_for 10 "what was reloaded and what waits" grep -q 'trusted_proxies' "$log.out"
kill -USR1 "$runner"
wait_for 30 "READY with the proxy trusted" logged '^READY 2'
wait_for 10 nginx openssl s_client -connect 127.0.0.1:8443 </dev/null
secret=$(oncebox provider create stripe --scheme stripe --pii allow --generate-secret --json | python3 -c '
import json, sys; answer = json.load(sys.stdin); print(answer.get("secret") or answer["credential"]["secret"])')
post() { python3 packaging/smoke/stripe.py "https://127.0.0.1:8443/in/stripe" "$secret" "$@"; }
expect '^200 .*"status":"ok"' post evt_smoke_1
expect '^200 .*"already_processed":true' post evt_smoke_1
expect '^401 application/problem\+json' post evt_smoke_2 --bad-signature
expect '^413 application/problem\+json' post evt_smoke_3 --bytes 3000000
expect '^404' curl -sko /dev/null -w '%{http_code}' https://127.0.0.1:8443/v1/events
expect evt_smoke_1 oncebox webhook list
tried first-webhook
tried first-event

step "a restart refuses no connection; a kill -9 loses nothing that was acknowledged"
python3 packaging/smoke/knock.py 127.0.0.1 8710 > "$work/knocks" & loader=$!
wait_for 10 "the first knock" test -s "$work/knocks"
kill -USR1 "$runner"
wait_for 60 "READY again" logged '^READY 3'
kill -USR2 "$runner"
wait_for 60 "READY after kill -9" logged '^READY 4'
kill -TERM "$loader"; wait "$loader" || fail "connections were refused: $(cat "$work/knocks")"; loader=
cat "$work/knocks"

step "backed up under load"
oncebox subscription create nobody --event-type 'invoice.*' --url http://127.0.0.1:8797/ >/dev/null
python3 packaging/smoke/load.py "$api" $data/admin.token "$work/acknowledged" & loader=$!
wait_for 20 "500 acknowledged events" python3 -c "assert sum(1 for _ in open('$work/acknowledged')) > 500"
cp "$work/acknowledged" "$work/before-backup"
mkdir "$work/backup"
oncebox backup "$work/backup"
kill -0 "$loader" || fail "the load ended too soon"
kill -TERM "$loader"; wait "$loader" || fail "the load met an error"; loader=
echo "$(wc -l < "$work/before-backup") events acknowledged when the backup began, $(wc -l < "$work/acknowledged") when it had ended"
tried backup
backup=$(ls "$work"/backup/*.db)
[[ $(stat -c %a "$backup") == 600 ]] || fail "the backup is $(mode "$backup")"
! grep -qF "$(cat $key)" -r "$work/backup" || fail "the master key is in the backup"
oncebox backup verify "$backup"

step "the disk is lost; restored"
stop
rm -rf $data
exits 0 oncebox restore "$backup"
cat "$work/out"
exits 5 oncebox restore "$backup"
oncebox token create restored --role admin --offline --json | python3 -c '
import json, sys; print(json.load(sys.stdin)["token"])' > "$work/admin.token"
install -m 0600 "$work/admin.token" $data/admin.token
rm "$log"
start
wait_for 30 "READY after the restore" logged '^READY 1'
[[ $(mode $data/oncebox.db) == '600 oncebox:oncebox' ]] || fail "restored as $(mode $data/oncebox.db)"
oncebox status
python3 packaging/smoke/load.py "$api" $data/admin.token "$work/before-backup" --check
expect '^200 .*"already_processed":true' post evt_smoke_1
expect '^200 .*"status":"ok"' post evt_smoke_4
expect 'in_doubt' oncebox doubt list --json
expect . oncebox doubt release --all --dry-run
oncebox doubt release --all
expect '"in_doubt":0' curl -sf -H "Authorization: Bearer $(cat $data/admin.token)" "$api/v1/stats"
oncebox audit verify
oncebox doctor

step "the master key is changed, and the secrets still open"
stop
oncebox keys rotate
[[ $(find /etc/oncebox -name 'master.key*' -perm 600 -user root | wc -l) == 2 ]] || fail "$(ls -l /etc/oncebox)"
rm "$log"
start
wait_for 30 "READY with the new key" logged '^READY 1'
expect '^200 .*"status":"ok"' post evt_smoke_5

step "upgraded: the settings somebody changed stay, and so does the data"
packaging/build-deb.sh --deb-version 0.1.0-2 --output "$work/newer.deb" >/dev/null
dpkg -i "$work/newer.deb"
grep -q '^trusted_proxies' /etc/oncebox/oncebox.toml || fail "the upgrade lost a setting"
kill -USR1 "$runner"
wait_for 30 "READY after the upgrade" logged '^READY 2'
expect evt_smoke_4 oncebox webhook list

step "removed, then purged: the data stays until a person deletes it"
stop
dpkg --remove oncebox
[[ -e $data/oncebox.db && -e $key ]] || fail "removing the package took data away"
expect "kept $data" dpkg --purge oncebox
[[ -e $data/oncebox.db && -e $key ]] || fail "purging the package took data away"
[[ ! -e /etc/oncebox/oncebox.toml && ! -e /usr/bin/oncebox ]] || fail "purging left files behind"

printf '\npackaging/smoke.sh: everything as an administrator would expect\n'
