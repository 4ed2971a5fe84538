"""Two receivers in one program: /orders takes orders, /finance invoices and credit notes. Python's standard library alone.

While the file FAILING exists, /orders answers 503. What is accepted is written to the log, in the order it came.
"""

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

FAILING, PORT_FILE, LOG = sys.argv[1:]
log = open(LOG, "a", buffering=1)
lock = threading.Lock()


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        event = json.loads(self.rfile.read(int(self.headers["content-length"])))
        failing = self.path == "/orders" and os.path.exists(FAILING)
        with lock:
            log.write(f"{'refused' if failing else 'taken'} {event['order']} {event['what']}\n")
        self.send_response(503 if failing else 204)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
with open(PORT_FILE, "w") as file:
    file.write(str(server.server_port))
server.serve_forever()
