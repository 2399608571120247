"""One connection: address, trust, deadline, and errors that say what to do."""
from __future__ import annotations

import ipaddress
import os
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, TypeVar, Union
from urllib.parse import urlsplit

import grpc

File = Union[str, "os.PathLike[str]"]
Answer = TypeVar("Answer")

#: What helps against failures, by gRPC's code.
_REMEDIES = {
    grpc.StatusCode.UNAVAILABLE: "check that it runs there and that you may open its socket or reach its address",
    grpc.StatusCode.UNAUTHENTICATED: "give a token (token_file) or a certificate (cert_file, key_file)",
    grpc.StatusCode.PERMISSION_DENIED: "ask for the role or namespace that is named, or join the group evenkeel on this machine",
    grpc.StatusCode.DEADLINE_EXCEEDED: "ask for less, or give a longer timeout",
}


class EvenkeelError(Exception):
    """A question that was not answered: what was asked, where, and why there is no answer."""

    def __init__(self, what: str, where: str, why: str, remedy: str = "", code: Optional[grpc.StatusCode] = None):
        super().__init__(f"{what} at {where}: {why}" + (f"; {remedy}" if remedy else ""))
        self.what, self.where, self.why, self.remedy, self.code = what, where, why, remedy, code


class Connection:
    """An open channel; close it, or use it in a ``with`` statement.

    :param address: ``unix:///PATH``, ``https://HOST:PORT`` or ``http://HOST:PORT``.
    :param token_file: file with the token that names the caller at an address; read for each call.
    :param ca_file: authorities of the other side's certificate, PEM; those of the system otherwise.
    :param cert_file: certificate that names the caller, PEM, with its key in ``key_file``.
    :param insecure: send the token over a network without encryption.
    :param timeout: seconds that an answer may take.
    """

    def __init__(
        self,
        address: str,
        *,
        token_file: Optional[File] = None,
        ca_file: Optional[File] = None,
        cert_file: Optional[File] = None,
        key_file: Optional[File] = None,
        insecure: bool = False,
        timeout: float = 30.0,
    ) -> None:
        self.address, self.timeout = address, timeout
        self._token_file = token_file
        if (cert_file is None) != (key_file is None):
            raise EvenkeelError("cannot connect", address, "a certificate and its key belong together", "give cert_file and key_file")
        where = urlsplit(address)
        if where.scheme == "https":
            read = lambda file: None if file is None else _read(file, address)  # noqa: E731
            trust = grpc.ssl_channel_credentials(read(ca_file), read(key_file), read(cert_file))
            self.channel = grpc.secure_channel(where.netloc, trust)
        elif where.scheme == "http":
            if token_file is not None and not insecure and not _is_loopback(where.hostname):
                raise EvenkeelError(
                    "cannot connect", address, "the token would be sent without encryption", "use https://, or say insecure=True"
                )
            self.channel = grpc.insecure_channel(where.netloc)
        elif where.scheme == "unix" and where.path:
            self.channel = grpc.insecure_channel(f"unix:{where.path}")
        else:
            raise EvenkeelError("cannot connect", address, "not an address", "write unix:///PATH, https://HOST:PORT or http://HOST:PORT")

    def __enter__(self):  # type: ignore[no-untyped-def]
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def close(self) -> None:
        """Closes the channel."""
        self.channel.close()

    def metadata(self) -> "list[tuple[str, str]]":
        """What names the caller, for calls by a stub of one's own."""
        if self._token_file is None:
            return []
        token = _read(self._token_file, self.address).decode("ascii", "replace").strip()
        return [("authorization", f"Bearer {token}")]

    def call(self, method: Callable[..., Answer], request: Any, timeout: Optional[float] = None) -> Answer:
        """One question, one answer."""
        try:
            return method(request, timeout=timeout or self.timeout, metadata=self.metadata())
        except grpc.RpcError as error:
            raise self._failure(request, error) from error

    def stream(self, method: Callable[..., Any], request: Any, timeout: Optional[float] = None) -> Iterator[Any]:
        """One question, answers one by one; without a deadline unless one is given."""
        answers = method(request, timeout=timeout, metadata=self.metadata())
        try:
            yield from answers
        except grpc.RpcError as error:
            raise self._failure(request, error) from error
        finally:
            answers.cancel()

    def _failure(self, request: Any, error: grpc.RpcError) -> EvenkeelError:
        code, why = error.code(), error.details() or error.code().name  # type: ignore[attr-defined]
        return EvenkeelError(f"no answer to {type(request).__name__}", self.address, why, _REMEDIES.get(code, ""), code)


def setting(given: Optional[Any], variable: str) -> Optional[Any]:
    """What was given, or what the environment has, as the command line reads it."""
    return given if given is not None else os.environ.get(variable) or None


def _read(file: File, address: str) -> bytes:
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise EvenkeelError("cannot connect", address, f"cannot read {os.fspath(file)}: {error.strerror}") from error


def _is_loopback(host: Optional[str]) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False
