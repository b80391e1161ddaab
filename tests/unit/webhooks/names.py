"""A name server of the tests' own, on UDP, and the smallest client that asks it."""

import asyncio
import ipaddress
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Final, cast

_HEADER: Final = struct.Struct("!HHHHHH")
_ANSWERED: Final = 0x8180
_NO_SUCH_NAME: Final = 0x8183
_TYPES: Final = {1: 4, 28: 16}
"""A and AAAA, and how long their addresses are."""


class NameServer(asyncio.DatagramProtocol):
    """Answers each question for a name with the next of its answers, the last again and again."""

    def __init__(self, answers: dict[str, Sequence[Sequence[str]]]) -> None:
        self._answers = answers
        self.asked: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)
        self.address: tuple[str, int] = transport.get_extra_info("sockname")

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        number = _HEADER.unpack_from(data)[0]
        name, end = _name(data, _HEADER.size)
        kind = struct.unpack_from("!H", data, end)[0]
        question = data[_HEADER.size : end + 4]
        given = self._answers.get(name)
        if kind == 1:
            self.asked.append(name)
        found = given[min(self.asked.count(name), len(given)) - 1] if given else ()
        packed = [ipaddress.ip_address(one).packed for one in found]
        records = [
            b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 0, len(one)) + one
            for one in packed
            if len(one) == _TYPES[kind]
        ]
        flags = _ANSWERED if given else _NO_SUCH_NAME
        head = _HEADER.pack(number, flags, 1, len(records), 0, 0)
        self._transport.sendto(head + question + b"".join(records), addr)


class _Asking(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        if not self.answer.done():
            self.answer.set_result(data)


class Client:
    """Asks one server for the addresses of names, and keeps none."""

    def __init__(self, server: tuple[str, int]) -> None:
        self._server = server

    async def __call__(self, name: str) -> Sequence[str]:
        found = [one for kind in _TYPES for one in await self._ask(name, kind)]
        if not found:
            raise OSError("no such name")
        return found

    async def _ask(self, name: str, kind: int) -> list[str]:
        loop = asyncio.get_running_loop()
        transport, asking = await loop.create_datagram_endpoint(_Asking, remote_addr=self._server)
        try:
            labels = name.removesuffix(".").encode().split(b".")
            packed = b"".join(bytes([len(one)]) + one for one in labels) + b"\0"
            head = _HEADER.pack(kind, 0x0100, 1, 0, 0, 0)
            transport.sendto(head + packed + struct.pack("!HH", kind, 1))
            data = await asking.answer
        finally:
            transport.close()
        count = _HEADER.unpack_from(data)[3]
        at = _name(data, _HEADER.size)[1] + 4
        size = _TYPES[kind]
        step = 12 + size
        return [
            str(ipaddress.ip_address(data[start + 12 : start + step]))
            for start in range(at, at + count * step, step)
        ]


def _name(data: bytes, at: int) -> tuple[str, int]:
    """The name that begins there, and where it ends."""
    labels = []
    while size := data[at]:
        labels.append(data[at + 1 : at + 1 + size].decode())
        at += 1 + size
    return ".".join(labels), at + 1


@asynccontextmanager
async def name_server(answers: dict[str, Sequence[Sequence[str]]]) -> AsyncIterator[NameServer]:
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: NameServer(answers), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server
    finally:
        transport.close()
