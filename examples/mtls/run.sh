#!/usr/bin/env bash
# Delivers an order to a receiver that wants a client certificate (receiver.py). Needs oncebox, python3 and openssl.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT
cd "$work"

# An authority, the receiver's certificate and ours.
make_key() { openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes "$@" 2>/dev/null; }
make_key -x509 -days 30 -subj /CN=authority -keyout ca.key -out ca.pem
sign() { openssl x509 -req -days 30 -CA ca.pem -CAkey ca.key -CAcreateserial "$@" 2>/dev/null; }
make_key -subj /CN=receiver -keyout receiver.key -out receiver.csr
sign -in receiver.csr -out receiver.pem -extfile <(echo 'subjectAltName=IP:127.0.0.1')
make_key -subj /CN=oncebox -keyout oncebox.key -out oncebox.csr
sign -in oncebox.csr -out oncebox.crt -extfile <(echo 'extendedKeyUsage=clientAuth')
cat oncebox.crt oncebox.key >oncebox.pem

python3 "$here/receiver.py" ca.pem receiver.pem receiver.key port >receiver.log &
# Oncebox, allowed to call this machine, and trusting the authority.
export ONCEBOX_DELIVERY__ALLOW=127.0.0.0/8 ONCEBOX_LISTEN__API=127.0.0.1:0 ONCEBOX_DELIVERY__CA_FILE=$work/ca.pem
oncebox serve --data data >serve.log 2>&1 &
until [[ -s port && -s data/oncebox.address ]]; do sleep 0.05; done

oncebox subscription create erp --data data --event-type 'order.*' --url "https://127.0.0.1:$(<port)/orders" >created
oncebox credential set erp --data data --kind client_certificate --secret-file oncebox.pem
oncebox emit order.paid --data data --key order:1 --payload '{"id":1}'
for _ in {1..200}; do
  grep -q 'order 1 taken' receiver.log && break
  sleep 0.1
done
cat receiver.log
grep -q 'order 1 taken from oncebox' receiver.log
