"""Canaries: modules that leave a marker when they are imported or called, and a watch over the rest."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, Final

from sealpoint.admin.databases.sqlite import slack

VARIABLE: Final = "SEALPOINT_ATTACK_MARKER"
"""Names the environment variable that says where the marker goes."""

_SOURCE: Final = f'''
import os, pathlib
def run(*args, **kwargs):
    pathlib.Path(os.environ["{VARIABLE}"]).write_text("called")
    return "called"
class Thing:
    def __init__(self, *args, **kwargs):
        run()
    fromisoformat = model_validate_json = parse_raw = construct = model_construct = staticmethod(run)
run()
'''

_WATCHED: Final = frozenset(
    {
        "code.__new__",
        "ctypes.dlopen",
        "function.__new__",
        "os.exec",
        "os.fork",
        "os.kill",
        "os.posix_spawn",
        "os.putenv",
        "os.remove",
        "os.system",
        "pickle.find_class",
        "shutil.rmtree",
        "socket.connect",
        "subprocess.Popen",
        "urllib.Request",
        "webbrowser.open",
    }
)


def place(directory: Path) -> None:
    """Write the modules, and put them where an import finds them."""
    (directory / "canary_package").mkdir()
    for name in ("canary", "canary_package/__init__", "canary_package/inner", "canary_package/langchain"):
        (directory / f"{name}.py").write_text(_SOURCE, encoding="utf-8")
    sys.path.insert(0, str(directory))
    sys.dont_write_bytecode = True


def watch(own: Path) -> list[str]:
    """Begin to note dangerous acts that leave no marker; return the list that they are noted in.

    Args:
        own: A directory in which files may be removed: commands make and remove some beside a database.
    """
    acts: list[str] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _WATCHED and not _is_ours(event, arguments, own):
            acts.append(event)

    sys.addaudithook(hook)
    return acts


def _is_ours(event: str, arguments: tuple[Any, ...], own: Path) -> bool:
    """Whether an act is that of a command, whatever the bytes are that it reads."""
    if event == "os.putenv":
        return bool(arguments[0] == b"PYDANTIC_DISABLE_PLUGINS")  # typer, while it reads arguments
    if event == "subprocess.Popen":  # `audit`, which reads the pages of a file in a process of its own
        return list(arguments[1][:3]) == [sys.executable, "-IS", slack.__file__]
    if event not in ("os.remove", "shutil.rmtree"):
        return False
    folder = (
        f"/proc/self/fd/{arguments[1]}" if (arguments[1] or -1) >= 0 else ""
    )  # rmtree goes by descriptors
    path = Path(folder) / os.fsdecode(arguments[0])
    return own.resolve() in path.resolve().parents
