"""Volumes as the kubelet mounts them: ``name -> ..data/name``, and ``..data ->`` a folder that is replaced.

The steps and their order are those of ``pkg/volume/util/atomic_writer.go`` of Kubernetes: names that are new
appear after the link was replaced, and the earlier folder is removed last.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from itertools import count
from pathlib import Path

_numbers = count()


class Volume:
    """The files of a Secret or a ConfigMap."""

    def __init__(self, folder: Path, *, mode: int = 0o644, fs_group: int | None = None) -> None:
        """Mount at ``folder``: ``defaultMode``, and the ``fsGroup`` of the pod."""
        self.folder, self._mode, self._fs_group = folder, mode, fs_group
        self._make(folder)

    def write(self, files: Mapping[str, bytes]) -> None:
        """Replace all files at once, by their paths."""
        fresh = self.folder / f"..2026_11_22_{next(_numbers)}"
        self._make(fresh)
        for name, content in files.items():
            self._put(fresh / name, content)
        data = self.folder / "..data"
        earlier = data.resolve() if data.is_symlink() else None
        (self.folder / "..data_tmp").symlink_to(fresh.name)
        (self.folder / "..data_tmp").replace(data)
        for name in {name.partition("/")[0] for name in files}:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        if earlier is not None:
            shutil.rmtree(earlier)

    def _make(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        if self._fs_group is not None:
            os.chown(folder, -1, self._fs_group)
        folder.chmod(0o755 if self._fs_group is None else 0o2755)

    def _put(self, file: Path, content: bytes) -> None:
        if not file.parent.exists():
            self._make(file.parent)
        file.write_bytes(content)
        mode = self._mode
        if self._fs_group is not None:
            os.chown(file, -1, self._fs_group)
            mode |= 0o440  # as SetVolumeOwnership does for a volume that is mounted read-only
        file.chmod(mode)
