"""The server's socket."""

import asyncio
import socket

from rabbitdelay.gateway.server import ServerSettings, listen


def test_accepted_connections_send_small_packets_at_once() -> None:
    """Headers and body of an answer are sent one by one: TCP would wait for an ack in between."""

    async def connect() -> None:
        found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def connected(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            sock = writer.get_extra_info("socket")
            found.set_result(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listening = listen(ServerSettings(port=0), has_tokens=False)
        server = await asyncio.start_server(connected, sock=listening)
        _, writer = await asyncio.open_connection(*listening.getsockname())
        try:
            assert await found
        finally:
            writer.close()
            await writer.wait_closed()
            server.close()

    asyncio.run(connect())
