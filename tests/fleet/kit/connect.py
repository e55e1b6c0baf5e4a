"""ssh's ProxyCommand: connect from inside the fence, hand ssh the socket (ProxyUseFdpass), end."""

import socket
import sys

host, port = sys.argv[1:]
with socket.create_connection((host, int(port)), timeout=10) as connection:
    connection.settimeout(None)
    with socket.socket(fileno=1) as ssh:
        socket.send_fds(ssh, [b"\0"], [connection.fileno()])
