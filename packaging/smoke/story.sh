#!/usr/bin/env bash
# An administrator's story on a Debian machine with systemd: install, start, take a webhook through nginx, make
# mistakes, back up under load, lose the disk, restore, upgrade, remove, purge. packaging/smoke.sh runs it as root in a
# machine of its own, which has the packages in /root and this repository in /source.
set -euo pipefail
work=$(mktemp -d)
readonly work here=/source/packaging data=/var/lib/oncebox settings=/etc/oncebox/oncebox.toml more=/etc/oncebox/conf.d
readonly api=http://127.0.0.1:8710 key=/etc/oncebox/master.key

step() { printf '\n-- %s s: %s\n' "$SECONDS" "$*"; }
fail() {
  printf 'FAILED: %s\n' "$*" >&2
  systemctl --no-pager status oncebox.service oncebox.socket >&2 || true
  journalctl --no-pager --lines 30 --output cat --unit oncebox.service --unit oncebox.socket >&2 || true
  exit 1
}

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

# Runs a block of docs/operating.md as it stands there.
tried() {
  awk -v name="<!-- tried: $1 -->" '$0 == name { found = 1; next } found && /^```$/ { exit } found && !/^```/' \
    /source/docs/operating.md > "$work/tried.sh"
  [[ -s $work/tried.sh ]] || fail "docs/operating.md has no block named $1"
  bash -euo pipefail "$work/tried.sh"
}

mode() { stat -c '%a %U:%G' "$1"; }
property() { systemctl show --property "$2" --value "$1"; }
is() { [[ $(property "$1" "$2") == "$3" ]]; }
status_says() { grep -qE -- "$1" <<<"$(property oncebox StatusText)"; }
log() { journalctl --no-pager --output cat --unit oncebox.service "$@"; }
main_pid() { property oncebox MainPID; }
loader=

step "dpkg -i"
dpkg -i /root/oncebox.deb
[[ $(mode $key) == '600 root:root' ]] || fail "$key is $(mode $key)"
getent passwd oncebox >/dev/null || fail "no user oncebox"
expect 'oncebox 0' oncebox --version
expect 'Run the service' man oncebox-serve
[[ -e /usr/share/bash-completion/completions/oncebox ]] || fail "no completions"

step "the unit: systemd-analyze verify is clean, and its exposure is at most 1.5"
systemd-analyze verify /lib/systemd/system/oncebox.service
systemd-analyze security --offline=true --threshold=15 --no-pager /lib/systemd/system/oncebox.service | tail -1

# A machine where this is tried may be fuller than one that keeps invoices.
printf '[disk]\nreserve = "64MiB"\n[delivery]\nallow = ["127.0.0.0/8"]\n' > $more/10-smoke.toml
oncebox config check
expect 'disk.reserve.*10-smoke.toml:2' oncebox config show

step "it runs as the unit says, and the watchdog is fed"
systemctl is-active oncebox.service oncebox.socket
systemctl restart oncebox
[[ $(mode $data) == '700 oncebox:oncebox' ]] || fail "$data is $(mode $data)"
[[ $(mode $data/oncebox.db) == '600 oncebox:oncebox' ]] || fail "the database is $(mode $data/oncebox.db)"
[[ ! -e $data/master.key ]] || fail "the key is in the data directory"
expect 'runs and is ready' oncebox status
status_says '^Ready, listening on 127.0.0.1:8710' || fail "it says: $(property oncebox StatusText)"
grep -q '^Seccomp:.*2' "/proc/$(main_pid)/status" || fail "no filter of system calls"
exits 75 setpriv --reuid oncebox --regid oncebox --clear-groups oncebox serve --listen 127.0.0.1:0
expect "$(main_pid)" cat "$work/out"
fed=$(property oncebox WatchdogTimestampMonotonic)
wait_for 40 "a sign of life" eval "! is oncebox WatchdogTimestampMonotonic $fed"

step "oncebox setup writes settings, moves the listener, and shows a sample arrive"
python3 -c '
from http.server import BaseHTTPRequestHandler, HTTPServer
class Target(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"])); self.send_response(200); self.end_headers()
HTTPServer(("127.0.0.1", 8099), Target).serve_forever()' 2>/dev/null &
target=$!
before=$(main_pid)
oncebox setup --public-url https://first.example.com --provider github --pii allow --target http://127.0.0.1:8099/in >"$work/out"
expect 'Service: has read its settings again' cat "$work/out"
expect 'it posts to https://first.example.com/in/github' cat "$work/out"
expect 'arrived: the target answered 200' cat "$work/out"
[[ $(main_pid) == "$before" ]] || fail "a setting that needs no restart has caused one"
[[ $(mode $more/setup.toml) == '644 root:root' ]] || fail "it is $(mode $more/setup.toml)"
exits 77 setpriv --reuid oncebox --regid oncebox --clear-groups oncebox setup --public-url https://second.example.com
expect 'restarted, and listens on the new address' oncebox setup --listen 127.0.0.1:8720 --trusted-proxy 127.0.0.1
expect '"status":"ready"' curl -sS http://127.0.0.1:8720/readyz
systemctl stop oncebox.socket oncebox.service
expect 'Service: started' oncebox setup --public-url https://third.example.com
rm -r $more/setup.toml /etc/systemd/system/oncebox.socket.d
systemctl daemon-reload
systemctl stop oncebox.socket oncebox.service
systemctl start oncebox.socket oncebox.service
oncebox provider delete github --yes
oncebox subscription delete github --yes
kill "$target"

step "a webhook signed as Stripe signs comes through nginx"
openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=hooks.example.com \
  -keyout "$work/nginx.key" -out "$work/nginx.pem" 2>/dev/null
sed -e "s|/etc/ssl/certs/.*\.pem|$work/nginx.pem|" -e "s|/etc/ssl/private/.*\.key|$work/nginx.key|" \
    -e 's|listen 443 ssl|listen 127.0.0.1:8443 ssl|' $here/nginx.conf > /etc/nginx/conf.d/oncebox.conf
rm -f /etc/nginx/sites-enabled/default
systemctl restart nginx
printf '[listen]\nconsole = "127.0.0.1:8711"\ntrusted_proxies = ["127.0.0.1/32"]\npublic_url = "https://hooks.example.com"
[console]\npublic_url = "https://oncebox.example.com"\n' > $more/20-proxy.toml
expect 'public_url.*hooks.example.com.*20-proxy.toml' oncebox config show
systemctl reload oncebox
wait_for 10 "what was reloaded and what waits" eval "log | grep -q trusted_proxies"
systemctl restart oncebox
secret=$(oncebox provider create stripe --scheme stripe --pii allow --generate-secret --json | python3 -c '
import json, sys; answer = json.load(sys.stdin); print(answer.get("secret") or answer["credential"]["secret"])')
post() { python3 $here/smoke/stripe.py "https://127.0.0.1:8443/in/stripe" "$secret" "$@"; }
expect '^200 .*"status":"ok"' post evt_smoke_1
expect '^200 .*"already_processed":true' post evt_smoke_1
expect '^401 application/problem\+json' post evt_smoke_2 --bad-signature
expect '^413 application/problem\+json' post evt_smoke_3 --bytes 3000000
expect '^404' curl -sko /dev/null -w '%{http_code}' https://127.0.0.1:8443/v1/events
expect evt_smoke_1 oncebox webhook list
console() { curl -sk --resolve oncebox.example.com:8443:127.0.0.1 -H 'Origin: https://oncebox.example.com' "$@"; }
exits 0 oncebox console link --user anna --role read
link=$(grep -oE 'https://oncebox.example.com/console/enter[?]link=[^ ]+' "$work/out") || fail "no link: $(cat "$work/out")"
expect 'name="link"' console "https://oncebox.example.com:8443/console/enter?link=${link##*=}"
expect '^set-cookie: .*Secure' console -D - -o /dev/null --data "link=${link##*=}" https://oncebox.example.com:8443/console/enter
tried first-webhook
tried first-event

knock() {
  python3 $here/smoke/knock.py 127.0.0.1 "${1:-8710}" > "$work/knocks" & loader=$!
  wait_for 10 "the first knock" test -s "$work/knocks"
}
knocked() {
  kill -TERM "$loader"; wait "$loader" || fail "connections were refused: $(cat "$work/knocks")"; loader=
  cat "$work/knocks"
}

step "a restart refuses no connection; a kill -9 loses nothing that was acknowledged"
knock
systemctl restart oncebox
killed=$(main_pid)
systemctl kill --kill-who=main --signal=KILL oncebox
wait_for 60 "another process that is ready" eval "is oncebox SubState running && [[ \$(main_pid) != $killed ]]"
knocked

step "a socket of its own for the intake: a restart refuses nobody there either"
printf '[listen]\nintake = "127.0.0.1:8712"\n' > $more/30-intake.toml
cp /usr/share/doc/oncebox/examples/oncebox-intake.socket /etc/systemd/system/
sed -i 's/:8711$/:8712/' /etc/systemd/system/oncebox-intake.socket
systemctl daemon-reload
systemctl stop oncebox.service
systemctl start oncebox-intake.socket oncebox.service
knock 8712
systemctl restart oncebox
knocked
systemctl stop oncebox.service oncebox-intake.socket
rm $more/30-intake.toml /etc/systemd/system/oncebox-intake.socket
systemctl daemon-reload
systemctl start oncebox.service

step "an address that the machine does not have yet: the socket is open, and doctor says where systemd listens"
mkdir -p /etc/systemd/system/oncebox.socket.d
printf '[Socket]\nListenStream=\nListenStream=192.0.2.7:8710\n' > /etc/systemd/system/oncebox.socket.d/address.conf
systemctl daemon-reload
systemctl stop oncebox.socket oncebox.service
systemctl start oncebox.socket oncebox.service
is oncebox.socket ActiveState active || fail "the socket waits for its address"
expect 'systemd listens on 192.0.2.7:8710' oncebox doctor
rm -r /etc/systemd/system/oncebox.socket.d
systemctl daemon-reload
systemctl stop oncebox.socket oncebox.service
systemctl start oncebox.socket oncebox.service

step "a port that is taken when the socket starts: it is tried again"
systemctl stop oncebox.socket oncebox.service
python3 -c '
import socket, time
taken = socket.create_server(("127.0.0.1", 8710))
print("taken", flush=True)
time.sleep(600)' > "$work/taken" & loader=$!
wait_for 10 "the port is taken" test -s "$work/taken"
! systemctl start oncebox.socket 2>/dev/null || fail "two programs listen on one port"
systemctl start --no-block oncebox.service
sleep 1
kill "$loader"; loader=
wait_for 60 "the service" is oncebox SubState running
systemctl stop oncebox.socket oncebox.service
systemctl start oncebox.socket oncebox.service
is oncebox.socket ActiveState active || fail "the socket was not tried again"

step "twelve restarts in a row are no reason to give up"
for ((n = 0; n < 12; n++)); do systemctl restart oncebox || fail "restart $n"; done
is oncebox.socket ActiveState active || fail "the socket is closed"

step "a mistake in the settings: a reload refuses it, a start tries again, the socket stays"
printf '[listen]\nnonsense = true\n' > $more/99-wrong.toml
! systemctl reload oncebox 2>/dev/null || fail "a reload took a broken file"
is oncebox SubState running || fail "a reload that failed ended the service"
curl -sf $api/readyz >/dev/null
! systemctl restart oncebox 2>/dev/null || fail "it started with a broken file"
wait_for 30 "a second try" eval "[[ \$(property oncebox NRestarts) -ge 2 ]]"
is oncebox.socket ActiveState active || fail "the socket is closed"
expect 'nonsense' log
rm $more/99-wrong.toml
systemctl restart oncebox
expect 'runs and is ready' oncebox status

step "a key that is not there: it starts when the key is back, and nobody asks for it"
mv $key $key.away
! systemctl restart oncebox 2>/dev/null || fail "it started without its key"
knock_later() { curl -sf --max-time 60 $api/livez > "$work/livez"; }
knock_later & knocker=$!
wait_for 30 "a second try" eval "[[ \$(property oncebox NRestarts) -ge 2 ]]"
mv $key.away $key
wait_for 30 "a start" is oncebox SubState running
wait "$knocker" || fail "a call that came meanwhile was not answered"

step "a receiver that hangs: while the service stops, what comes in is taken"
python3 -c '
import socket
listener = socket.create_server(("127.0.0.1", 8798))
held = listener.accept()
print("asked", flush=True)
while held[0].recv(65536):
    pass' > "$work/hanging" & loader=$!
oncebox subscription create hanging --event-type 'hang.*' --url http://127.0.0.1:8798/ >/dev/null
oncebox emit hang.on --payload '{}' >/dev/null
wait_for 20 "the request that hangs" test -s "$work/hanging"
systemctl restart --no-block oncebox
wait_for 20 "a stop under way" is oncebox SubState stop-sigterm
for ((n = 0; n < 5; n++)); do
  oncebox emit taken.meanwhile --payload '{}' >/dev/null
  is oncebox SubState stop-sigterm || fail "the stop did not wait for the delivery"
done
kill "$loader"; loader=
wait_for 30 "the next start" is oncebox SubState running
oncebox subscription pause hanging >/dev/null

step "systemctl status says what /readyz says"
python3 -c '
import sqlite3, sys, time
db = sqlite3.connect(sys.argv[1], isolation_level=None)
db.execute("BEGIN IMMEDIATE")
time.sleep(600)' $data/oncebox.db & loader=$!
wait_for 60 "a status that says it" status_says '^Not ready: .*database'
kill "$loader"; loader=
wait_for 60 "a status that says it is over" status_says '^Ready'

step "a folder that the unit closes: source test has the lines that open it"
install -d -m 0750 -o oncebox -g oncebox /srv/drops
exits 1 oncebox source add drops --drop /srv/drops
exits 1 oncebox source test drops
expect '^ReadWritePaths=-/srv/drops$' cat "$work/out"
mkdir -p /etc/systemd/system/oncebox.service.d
sed -n '/^\[Service\]$/,/^$/p' "$work/out" > /etc/systemd/system/oncebox.service.d/override.conf
systemctl daemon-reload
systemctl restart oncebox
exits 0 oncebox source test drops
oncebox source remove drops --yes >/dev/null

step "an ERP's PostgreSQL: written into and read, by a process of oncebox-odbc within the unit's limits"
wait_for 60 "PostgreSQL" setpriv --reuid postgres --regid postgres --init-groups pg_isready --quiet
as_owner() { setpriv --reuid postgres --regid postgres --init-groups psql -qAt -v ON_ERROR_STOP=1 -d erp "$@"; }
setpriv --reuid postgres --regid postgres --init-groups createdb --encoding UTF8 --template template0 erp
printf '[databases.erp]\ndriver = "PostgreSQL Unicode"\nserver = "127.0.0.1"\nport = 5432\ndatabase = "erp"
user = "oncebox"\npassword_file = "/etc/oncebox/erp.password"\ntls = false
[databases.maria]\ndriver = "MariaDB Unicode"\nserver = "127.0.0.1"\nport = 1\ntls = false
[databases.tds]\ndriver = "FreeTDS"\nserver = "127.0.0.1"\nport = 1\ntls = false\n' > $more/40-erp.toml
install -m 0600 -o oncebox -g oncebox /dev/null /etc/oncebox/erp.password
echo 'secret of the ERP' > /etc/oncebox/erp.password
systemctl restart oncebox
exits 1 oncebox database test erp
expect 'install the package oncebox-odbc' cat "$work/out"
dpkg -i /root/oncebox-odbc.deb
[[ $(mode /usr/bin/oncebox-odbc) == '755 root:root' ]] || fail "oncebox-odbc is $(mode /usr/bin/oncebox-odbc)"
expect 'It takes no arguments' man oncebox-odbc
exits 1 oncebox database test erp
expect 'correct user and password_file' cat "$work/out"
# No server is there for the two others: what they say shows that they can be loaded.
expect "connect to (MySQL )?server on '127.0.0.1'" oncebox database test maria
expect 'Unable to connect: Adaptive Server' oncebox database test tds
as_owner -c "CREATE ROLE oncebox LOGIN PASSWORD 'secret of the ERP'"
oncebox database ddl postgresql --user oncebox | as_owner
oncebox source ddl postgresql | as_owner
oncebox source ddl postgresql | sed -n 's/^-- *\(GRANT .*\)/\1/p' | as_owner
exits 0 oncebox database test erp
expect 'processed_events is there' cat "$work/out"
oncebox subscription create written --event-type 'written.*' --database erp --inbox oncebox_inbox >/dev/null
oncebox emit written.now --payload '{"text":"Größe € Ω"}' >/dev/null
wait_for 20 "the row of the inbox" eval "[[ \$(as_owner -c 'SELECT payload FROM oncebox_inbox') == *'Größe € Ω'* ]]"
[[ $(as_owner -c 'SELECT count(*) FROM processed_events') == 1 ]] || fail "no guard was written"
oncebox source add erp --database erp >/dev/null
as_owner -c "INSERT INTO outbox (event_type, payload) VALUES ('read.now', '{\"n\":1}')"
wait_for 20 "the mark of the row" eval "[[ \$(as_owner -c 'SELECT count(*) FROM outbox WHERE taken_at IS NOT NULL') == 1 ]]"
helpers() { find /proc -maxdepth 2 -name exe -lname /usr/bin/oncebox-odbc 2>/dev/null | cut -d/ -f3; }
helper=$(helpers | head -1)
[[ -n $helper ]] || fail "no process of oncebox-odbc is there"
grep -q '^Seccomp:.*2' "/proc/$helper/status" || fail "oncebox-odbc has no filter of system calls"
grep -q 'oncebox.service' "/proc/$helper/cgroup" || fail "oncebox-odbc runs outside the unit"
# shellcheck disable=SC2016  # The dollar is awk's.
expect "^$(id -u oncebox)$" awk '/^Uid:/ { print $2 }' "/proc/$helper/status"
systemctl stop oncebox.socket oncebox.service
[[ -z $(helpers) ]] || fail "a process of oncebox-odbc outlived the service"
systemctl start oncebox.socket oncebox.service
oncebox source remove erp --yes >/dev/null
oncebox subscription delete written --yes >/dev/null
rm $more/40-erp.toml
systemctl restart oncebox

step "doctor finds nothing wrong, whoever runs it"
oncebox doctor
setpriv --reuid oncebox --regid oncebox --clear-groups oncebox doctor >/dev/null
setpriv --reuid nobody --regid nogroup --clear-groups oncebox doctor >/dev/null

step "backed up under load"
oncebox subscription create nobody --event-type 'invoice.*' --url http://127.0.0.1:8797/ >/dev/null
python3 $here/smoke/load.py "$api" $data/admin.token "$work/acknowledged" & loader=$!
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

step "the disk is lost; restored as the documentation says, into an emptied directory"
systemctl stop oncebox.socket oncebox.service
expect 'systemctl start oncebox' oncebox status
oncebox doctor >/dev/null
rm -rf ${data:?}/*
exits 0 oncebox restore "$backup"
cat "$work/out"
exits 5 oncebox restore "$backup"
oncebox token create restored --role admin --offline --out $data/admin.token
[[ -z $(find $data ! -user oncebox) ]] || fail "not the service's: $(find $data ! -user oncebox)"
systemctl start oncebox.socket oncebox.service
[[ $(mode $data/oncebox.db) == '600 oncebox:oncebox' ]] || fail "restored as $(mode $data/oncebox.db)"
oncebox status
python3 $here/smoke/load.py "$api" $data/admin.token "$work/before-backup" --check
expect '^200 .*"already_processed":true' post evt_smoke_1
expect '^200 .*"status":"ok"' post evt_smoke_4
expect 'in_doubt' oncebox in-doubt list --json
expect . oncebox in-doubt release --all --dry-run
oncebox in-doubt release --all --yes
expect '"in_doubt":0' curl -sf -H "Authorization: Bearer $(cat $data/admin.token)" "$api/v1/stats"
oncebox audit verify
plain=$(journalctl --no-pager --output cat --unit oncebox _EXE=/usr/bin/oncebox | grep -v '^{' |
  grep -v -e nonsense -e 'noted in /etc/oncebox/master.key.database' || true)
[[ -z $plain ]] || fail "the journal has lines that are no objects: $plain"

step "the master key is changed, and the secrets still open"
systemctl stop oncebox.socket oncebox.service
oncebox keys rotate
[[ $(find /etc/oncebox -name 'master.key*' -perm 600 -user root | wc -l) == 2 ]] || fail "$(ls -l /etc/oncebox)"
systemctl start oncebox.socket oncebox.service
expect '^200 .*"status":"ok"' post evt_smoke_5

step "upgraded: no connection is refused, the settings somebody changed stay, and so does the data"
before=$(property oncebox.socket ActiveEnterTimestampMonotonic)
old=$(main_pid)
knock
echo '# changed by a person' >> $settings
DEBIAN_FRONTEND=noninteractive dpkg -i /root/newer.deb </dev/null
knocked
[[ $(main_pid) != "$old" ]] || fail "the old program still runs"
is oncebox.socket ActiveEnterTimestampMonotonic "$before" || fail "the upgrade closed the socket"
grep -q '^# changed by a person' $settings || fail "the upgrade lost a setting"
grep -q '^trusted_proxies' $more/20-proxy.toml || fail "the upgrade lost a setting"
expect evt_smoke_4 oncebox webhook list

step "removed, then purged: the data stays until a person deletes it"
dpkg --purge oncebox-odbc
[[ ! -e /usr/bin/oncebox-odbc ]] || fail "purging oncebox-odbc left its program behind"
dpkg --remove oncebox
! systemctl is-active --quiet oncebox.socket oncebox.service || fail "it runs on without its package"
[[ -e $data/oncebox.db && -e $key ]] || fail "removing the package took data away"
rm -r $more
expect "kept $data" dpkg --purge oncebox
[[ -e $data/oncebox.db && -e $key ]] || fail "purging the package took data away"
[[ ! -e $settings && ! -e /usr/bin/oncebox ]] || fail "purging left files behind"

printf '\npackaging/smoke.sh: everything as an administrator would expect\n'
