"""The systemd of the host, over its own socket for root: no dbus-daemon, no capability and no namespace of the host.

systemd takes what the user id of the peer allows. `systemctl` and runc connect in the same way.

Source: org.freedesktop.systemd1(5)
"""
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# jeepney has no types.

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from jeepney import DBusAddress, HeaderFields, MessageType, new_method_call
from jeepney.io.blocking import prep_socket
from jeepney.low_level import Message, Parser

SOCKET: Final = Path("/run/systemd/private")
CALL_SECONDS: Final = 30.0
JOB_SECONDS: Final = 120.0
"""Longer than systemd waits for a service that does not report its start."""
_LOOK_SECONDS: Final = 0.1
_SERIAL: Final = 1
_CHUNK: Final = 65536
_SILENCE_SECONDS: Final = 0.2
_NAME: Final = "org.freedesktop.systemd1"
_MANAGER: Final = "/org/freedesktop/systemd1"
_PING: Final = new_method_call(DBusAddress(_MANAGER, _NAME, "org.freedesktop.DBus.Peer"), "Ping")
_UNIT: Final = "org.freedesktop.systemd1.Unit"
_SERVICE: Final = "org.freedesktop.systemd1.Service"


class SystemdRefused(Exception):
    """systemd cannot be reached, refuses a call, or does not end a job in time."""


@dataclass(frozen=True, slots=True)
class UnitState:
    active: str  # "active" if the service has reported its start; else "inactive", "activating", "failed" ..
    status: str  # Last text that the service has sent to systemd; "" if none


class Systemd:
    """Implements `steps.Units`. Calls wait for their answers. They raise SystemdRefused if systemd does not answer."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket

    def reload(self) -> None:
        self._manager("Reload")

    def enable(self, unit: str) -> None:
        self._manager("EnableUnitFiles", "asbb", [unit], False, True)

    def disable(self, unit: str) -> None:
        self._manager("DisableUnitFiles", "asb", [unit], False)

    def restart(self, unit: str) -> UnitState:
        self._manager("RestartUnit", "ss", unit, "replace")
        return self._settled(unit)

    def stop(self, unit: str) -> None:
        self._manager("StopUnit", "ss", unit, "replace")
        self._settled(unit)

    def state(self, unit: str) -> UnitState:
        """ "inactive" if it has no unit file."""
        (path,) = self._manager("LoadUnit", "s", unit)
        return UnitState(self._property(path, _UNIT, "ActiveState"), self._property(path, _SERVICE, "StatusText"))

    def _settled(self, unit: str) -> UnitState:
        """Wait until a unit has no job, and return its state."""
        (path,) = self._manager("LoadUnit", "s", unit)
        deadline = time.monotonic() + JOB_SECONDS
        while self._property(path, _UNIT, "Job")[0]:
            if time.monotonic() > deadline:
                raise SystemdRefused(f"{unit}: its job has not ended after {JOB_SECONDS:g} s")
            time.sleep(_LOOK_SECONDS)
        return self.state(unit)

    def _property(self, path: str, interface: str, name: str) -> Any:
        ((_, value),) = self._call(path, "org.freedesktop.DBus.Properties", "Get", "ss", (interface, name))
        return value

    def _manager(self, method: str, signature: str = "", *arguments: Any) -> Any:
        return self._call(_MANAGER, "org.freedesktop.systemd1.Manager", method, signature, arguments)

    def _call(self, path: str, interface: str, method: str, signature: str, arguments: tuple[Any, ...]) -> Any:
        """Call a method on a connection of its own, and return the values of its answer."""
        address = DBusAddress(path, _NAME, interface)
        message = new_method_call(address, method, signature or None, arguments)
        try:
            answer = self._ask(message)
        except OSError as error:
            raise SystemdRefused(f"{self._socket}: {method}: {error}") from error
        if answer.header.message_type is MessageType.error:
            raise SystemdRefused(f"{method}: {': '.join(map(str, answer.body))}")
        return answer.body

    def _ask(self, message: Message) -> Message:
        """jeepney's connections greet a dbus-daemon first; here is none.

        If the message comes together with the end of the authentication, systemd leaves it until more comes. So a
        silence is answered with a ping.
        """
        parser, deadline = Parser(), time.monotonic() + CALL_SECONDS
        with prep_socket(str(self._socket), timeout=CALL_SECONDS) as connection:
            connection.settimeout(_SILENCE_SECONDS)
            connection.sendall(message.serialise(_SERIAL))
            while time.monotonic() < deadline:
                answer = parser.get_next_message()
                if answer is None:
                    try:
                        data = connection.recv(_CHUNK)
                        if not data:
                            raise ConnectionResetError("systemd has closed the connection")
                        parser.add_data(data)
                    except TimeoutError:
                        connection.sendall(_PING.serialise(_SERIAL + 1))
                elif answer.header.fields.get(HeaderFields.reply_serial) == _SERIAL:
                    return answer
        raise TimeoutError(f"no answer after {CALL_SECONDS:g} s")
