"""An OpenSSH server of the tests' own, and its client: Debian's programs, keys of their own, one user.

A server that is not root serves none but its own user. Where we are root it runs as `nobody`, from copies of its files
that `nobody` reaches; a file of users in place of the machine's (nss_wrapper) gives that user a name and a shell.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import attrs
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from tests.servers.server import UNPACKED, environment, find_program, free_port, run_server

USER = "tester"
HOST = "devbox.test"  # what the client knows the server's key by
AS_ROOT = os.geteuid() == 0
NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups") if AS_ROOT else ()
WRAPPER = "libnss_wrapper.so"
LIBRARIES = "usr/lib/*-linux-gnu*"  # of Debian's packages, below where they were unpacked or installed

SERVER_CONFIG = """
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
Subsystem sftp internal-sftp
"""
CLIENT_CONFIG = """
Host *
  User {user}
  IdentityFile {folder}/user_key
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile none
  HostKeyAlias {host}
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
"""


@attrs.frozen
class Sshd:
    """A server that listens.

    Attributes:
        port: of 127.0.0.1.
        home: of its user.
        client_config: for `ssh -F`: whom the client is and which server it trusts.
    """

    port: int
    home: Path
    client_config: Path

    def command(self, program: str, *arguments: str | Path, options: Sequence[str] = ()) -> list[str | Path]:
        """A command of ssh, scp or sftp, with these `-o` options."""
        using = ("-S", find_program("ssh")) if program != "ssh" else ()
        chosen = [part for option in options for part in ("-o", option)]
        return [find_program(program), *using, "-F", self.client_config, *chosen, *arguments]


def _write_key(path: Path) -> str:
    """A new key. Returns its public half."""
    key = Ed25519PrivateKey.generate()
    path.touch(0o600)
    path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.OpenSSH, NoEncryption()))
    return key.public_key().public_bytes(Encoding.OpenSSH, PublicFormat.OpenSSH).decode()


def _copy_programs(folder: Path) -> Path:
    """The server, and of its libraries those that came with it, below `folder`. Returns the server's path."""
    folder.mkdir()
    server = Path(shutil.copy(find_program("sshd"), folder))
    listed = subprocess.run(["ldd", server], env=environment(), stdout=subprocess.PIPE, text=True, check=True).stdout
    paths = [line.partition(" => ")[2].partition(" (")[0] for line in listed.splitlines()]
    for path in [one for one in paths if one.startswith(str(UNPACKED))]:
        shutil.copy(path, folder)
    wrapper = next((path for root in (UNPACKED, Path("/")) for path in root.glob(f"{LIBRARIES}/{WRAPPER}")), None)
    assert wrapper is not None, f"{WRAPPER} is missing: `make setup` brings it"
    shutil.copy(wrapper, folder)
    return server


def _give_to(uid: int, gid: int, folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, uid, gid)


@asynccontextmanager
async def run_sshd() -> AsyncGenerator[Sshd]:
    """Run a server for the length of the block."""
    with tempfile.TemporaryDirectory(prefix="sshd") as server_name, tempfile.TemporaryDirectory() as client_name:
        folder, client, port = Path(server_name), Path(client_name), free_port()
        server = _copy_programs(folder / "bin")
        host_key, user_key = _write_key(folder / "host_key"), _write_key(client / "user_key")
        (folder / "authorized_keys").write_text(f"{user_key}\n")
        (folder / "config").write_text(SERVER_CONFIG.format(port=port, folder=folder))
        (folder / "home").mkdir()
        uid, gid = (NOBODY, NOBODY) if AS_ROOT else (os.getuid(), os.getgid())
        (folder / "passwd").write_text(f"{USER}:x:{uid}:{gid}::{folder}/home:/bin/sh\n")
        (folder / "group").write_text(f"{USER}:x:{gid}:\n")
        (client / "known_hosts").write_text(f"{HOST} {host_key}\n")
        (client / "config").write_text(CLIENT_CONFIG.format(user=USER, folder=client, host=HOST))
        _give_to(uid, gid, folder)
        settings = [f"LD_LIBRARY_PATH={folder}/bin", f"LD_PRELOAD={folder}/bin/{WRAPPER}"]
        settings += [f"NSS_WRAPPER_PASSWD={folder}/passwd", f"NSS_WRAPPER_GROUP={folder}/group"]
        command = [*AS_NOBODY, "env", *settings, server, "-D", "-e", "-f", folder / "config"]
        async with run_server(command, port):
            yield Sshd(port, folder / "home", client / "config")
