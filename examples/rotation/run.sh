#!/usr/bin/env bash
# Rotates a signing secret while orders go out, and kills the service in between. Needs oncebox and python3.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null; rm -rf "$work"' EXIT

# Oncebox, allowed to call this machine.
export ONCEBOX_DELIVERY__ALLOW=127.0.0.0/8 ONCEBOX_LISTEN__API=127.0.0.1:0
serve() {
  rm -f "$work/data/oncebox.address"
  oncebox serve --data "$work/data" >>"$work/serve.log" 2>&1 &
  service=$!
  until [[ -s $work/data/oncebox.address ]]; do
    kill -0 "$service" || { cat "$work/serve.log"; exit 1; }
    sleep 0.05
  done
}
serve

# The receiver knows one secret.
head -c 24 /dev/urandom | base64 | sed 's/^/whsec_/' >"$work/secret"
python3 "$here/receiver.py" "$work/secret" "$work/port" "$work/receiver.log" &
until [[ -s $work/port ]]; do sleep 0.05; done
oncebox subscription create erp --data "$work/data" --event-type 'order.*' --steps 1s \
  --url "http://127.0.0.1:$(<"$work/port")/" --secret-file "$work/secret" >"$work/created"

# Orders, one after the other, each until it is stored.
(
  for order in {1..100000}; do
    [[ -e $work/enough ]] && break
    until oncebox emit order.paid --data "$work/data" --key "order:$order" --payload "{\"id\":$order}" \
      >/dev/null 2>&1; do sleep 0.1; done
    echo "$order" >"$work/published"
  done
) &
orders=$!
until [[ -s $work/published ]]; do sleep 0.05; done

# The new secret is shown once. From now on requests carry both signatures.
id=$(oncebox credential list --data "$work/data" --subscription erp --json | python3 -c \
  'import json, sys; print(json.load(sys.stdin)["items"][0]["id"])')
oncebox credential rotate "$id" --data "$work/data" --overlap 1h --json >"$work/rotated"
sleep 2
kill -9 "$service"
wait "$service" 2>/dev/null || true
serve

# The receiver learns the new one, and forgets the old one in the same moment.
python3 -c 'import json, sys; print(json.load(sys.stdin)["secret"])' <"$work/rotated" >"$work/new"
mv "$work/new" "$work/secret"
for _ in {1..600}; do
  grep -q 'taken ping' "$work/receiver.log" && break
  sleep 0.1
done
sleep 1
oncebox credential list --data "$work/data" --subscription erp
touch "$work/enough"
wait "$orders"
for _ in {1..200}; do
  taken=$(grep -o 'taken order .*' "$work/receiver.log" | sort -u | wc -l)
  [[ $taken -ge $(<"$work/published") ]] && break
  sleep 0.1
done

refused=$(grep -c 'refused order' "$work/receiver.log" || true)
echo "$(<"$work/published") orders, $taken taken, $refused refused"
grep -q 'taken ping' "$work/receiver.log" && [[ $taken -eq $(<"$work/published") && $refused -eq 0 ]]
