#!/usr/bin/env bash
# An ERP's order, invoice and credit note, in this order at two targets, while the first one fails for a while.
# Needs oncebox and python3.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait 2>/dev/null; rm -rf "$work"' EXIT

touch "$work/failing"
python3 "$here/receiver.py" "$work/failing" "$work/port" "$work/log" &

# Oncebox, allowed to call this machine. Subscriptions of a group share their lanes: one for each aggregate.
port() { until [[ -s $work/port ]]; do sleep 0.05; done; cat "$work/port"; }
cat >"$work/oncebox.toml" <<END
[[subscription]]
name = "orders"
url = "http://127.0.0.1:$(port)/orders"
event_types = ["order.*"]
ordering = "key"
order = { group = "sales" }
policy = { steps = ["1s", "1s", "1s"], max_attempts = 100 }

[[subscription]]
name = "finance"
url = "http://127.0.0.1:$(port)/finance"
event_types = ["invoice.*", "credit_note.*"]
ordering = "key"
order = { group = "sales" }
END
export ONCEBOX_DELIVERY__ALLOW=127.0.0.0/8 ONCEBOX_LISTEN__API=127.0.0.1:0
oncebox serve --data "$work/data" >"$work/serve.log" 2>&1 &
until [[ -s $work/data/oncebox.address ]]; do
  kill -0 $! || { cat "$work/serve.log"; exit 1; }
  sleep 0.05
done
oncebox apply --data "$work/data" --file "$work/oncebox.toml"

# The ERP writes three events of each order. Those of an order have its aggregate, which is the key of their lane.
for order in 1 2 3; do
  for what in order.created invoice.created credit_note.created; do
    oncebox emit "$what" --data "$work/data" --key "$what:$order" --aggregate "order/$order" \
      --payload "{\"order\":$order,\"what\":\"${what%.*}\"}" >/dev/null
  done
done

# The first target fails: nothing of any order may reach the second one.
until [[ $(grep -c refused "$work/log" || true) -ge 6 ]]; do sleep 0.05; done
! grep -q taken "$work/log" || { echo "an invoice went ahead of its order"; exit 1; }
rm "$work/failing"
for _ in {1..400}; do
  [[ $(grep -c taken "$work/log" || true) -ge 9 ]] && break
  sleep 0.05
done

for order in 1 2 3; do
  taken=$(sed -n "s/^taken $order //p" "$work/log" | paste -sd' ')
  echo "order $order: $taken"
  [[ $taken == "order invoice credit_note" ]]
done
