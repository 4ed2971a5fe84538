"""A mail server that asks for STARTTLS and a password, and adds what it takes to a file: see .ci/mail."""

import asyncio
import pathlib
import socket
import ssl
import sys
import time

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult

work = pathlib.Path(sys.argv[1])


class Keep:
    async def handle_DATA(self, server, session, envelope):
        head = f"X-Logged-On: {session.auth_data}\nX-To: {envelope.rcpt_tos}\n"
        with (work / "mail").open("a") as mail:
            mail.write(head + envelope.content.decode().replace("\r\n", "\n"))
        # Long enough that a sender is often killed between the mail and the answer.
        await asyncio.sleep(0.05)
        return "250 taken"


def authenticate(server, session, envelope, mechanism, data):
    good = (data.login, data.password) == (b"shop", b"s3cret")
    return AuthResult(success=good, auth_data=data.login.decode())


tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
tls.load_cert_chain(work / "cert.pem", work / "key.pem")
controller = Controller(
    Keep(), hostname="127.0.0.1", port=0, tls_context=tls, require_starttls=True, auth_required=True,
    authenticator=authenticate)
# The port is free when it is asked for: the controller itself wants a number.
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    controller.port = free.getsockname()[1]
controller.start()
(work / "port").write_text(str(controller.port))
time.sleep(600)
