"""An HTTPS receiver that asks every client for a certificate. Python's standard library alone."""

import json
import ssl
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

CA, CERTIFICATE, KEY, PORT_FILE = sys.argv[1:]


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        subject = dict(pair for part in self.connection.getpeercert()["subject"] for pair in part)
        print(f"order {json.loads(body)['id']} taken from {subject['commonName']}", flush=True)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_):
        pass


context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
context.load_verify_locations(CA)
context.verify_mode = ssl.CERT_REQUIRED
server = HTTPServer(("127.0.0.1", 0), Receiver)
server.socket = context.wrap_socket(server.socket, server_side=True)
with open(PORT_FILE, "w") as file:
    file.write(f"{server.server_port}\n")
server.serve_forever()
