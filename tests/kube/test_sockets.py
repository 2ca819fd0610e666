"""A socket closes its own descriptor and nobody else's."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable

import pytest

from extender.kube.client.sockets import Socket, kept_alive

IPV4 = (socket.AF_INET, socket.SOCK_STREAM, 0, "", ("127.0.0.1", 0))


def made() -> socket.socket:
    return kept_alive(IPV4)


def closed(one: list[socket.socket]) -> None:
    one.pop().close()


def collected(one: list[socket.socket]) -> None:
    one.pop()


both = pytest.mark.parametrize("end", [closed, collected])


@both
def test_its_descriptor_is_closed_with_it(end: Callable[[list[socket.socket]], None]) -> None:
    one = [made()]
    descriptor = one[0].fileno()
    end(one)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@both
def test_a_descriptor_that_is_another_sockets_by_now_stays_open(end: Callable[[list[socket.socket]], None]) -> None:
    one = [made()]
    descriptor = one[0].fileno()
    os.close(descriptor)  # what uvloop does
    with socket.socket() as other:
        assert other.fileno() == descriptor
        end(one)
        other.bind(("127.0.0.1", 0))


@both
def test_a_descriptor_that_is_nobodys_is_left_alone(end: Callable[[list[socket.socket]], None]) -> None:
    one = [made()]
    os.close(one[0].fileno())
    end(one)


def test_it_may_be_closed_twice_and_detached() -> None:
    one = made()
    one.close()
    one.close()
    other = made()
    os.close(other.detach())
    other.close()


def test_the_kernel_looks_after_it() -> None:
    with made() as one:
        assert isinstance(one, Socket)
        assert one.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert one.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 15
