#!/usr/bin/env bash
# Delivers two orders to an ERP that wants OAuth2 tokens (erp.py). Needs oncebox and python3.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# The ERP gives its client a secret, in a file.
head -c 24 /dev/urandom | base64 >"$work/client.secret"
python3 "$here/erp.py" oncebox "$work/client.secret" "$work/erp.port" >"$work/erp.log" &

# Oncebox, allowed to call this machine.
export ONCEBOX_DELIVERY__ALLOW=127.0.0.0/8 ONCEBOX_LISTEN__API=127.0.0.1:0
oncebox serve --data "$work/data" >"$work/serve.log" 2>&1 &
until [[ -s $work/erp.port && -s $work/data/oncebox.address ]]; do sleep 0.05; done
erp=http://127.0.0.1:$(<"$work/erp.port")

oncebox subscription create erp --data "$work/data" --event-type 'order.*' --url "$erp/orders" >"$work/created"
oncebox credential set erp --data "$work/data" --kind oauth2 --token-url "$erp/token" --client-id oncebox \
  --scope orders --secret-file "$work/client.secret"
for order in 1 2; do
  oncebox emit order.paid --data "$work/data" --key "order:$order" --payload "{\"id\":$order}"
  for _ in {1..200}; do
    grep -q "order $order taken" "$work/erp.log" && break
    sleep 0.1
  done
done
cat "$work/erp.log"
grep -q 'order 1 taken' "$work/erp.log" && grep -q 'order 2 taken' "$work/erp.log"
