"""An ERP behind OAuth2: POST /token gives a client its token, POST /orders takes orders from whoever has one.

Python's standard library alone. It ends every token after one order, so that a client has to ask again.
"""

import base64
import json
import secrets
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, unquote

CLIENT, SECRET_FILE, PORT_FILE = sys.argv[1:]
SECRET = open(SECRET_FILE).read().strip()
tokens = set()


def say(text):
    print(text, flush=True)


class Erp(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.path == "/token":
            self.answer(*self.token(body))
        else:
            self.answer(*self.order(body))

    def token(self, body):
        scheme, _, encoded = self.headers.get("authorization", "").partition(" ")
        client, _, secret = base64.b64decode(encoded).decode().partition(":")
        is_known = (unquote(client), unquote(secret)) == (CLIENT, SECRET)
        form = parse_qs(body.decode())
        if scheme != "Basic" or not is_known or form["grant_type"] != ["client_credentials"]:
            say("token refused")
            return 401, {"error": "invalid_client"}
        token = secrets.token_urlsafe(32)
        tokens.add(token)
        say(f"token given to {CLIENT} for {form['scope'][0]}")
        return 200, {"access_token": token, "token_type": "Bearer", "expires_in": 3600}

    def order(self, body):
        token = self.headers.get("authorization", "").removeprefix("Bearer ")
        if token not in tokens:
            say("order refused: no valid token")
            return 401, {"error": "invalid_token"}
        tokens.discard(token)
        say(f"order {json.loads(body)['id']} taken")
        return 200, {"ok": True}

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


server = HTTPServer(("127.0.0.1", 0), Erp)
with open(PORT_FILE, "w") as file:
    file.write(f"{server.server_port}\n")
server.serve_forever()
