"""What all kinds of tables share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from inspect import iscoroutinefunction
from typing import Any, Final

ALLOW_HINT: Final = (
    "if you have put it there yourself, and trust what it does: SealedSaver(..., allow_schema=True);"
    " otherwise find out who did before you use the database"
)


class Tables:
    """Those of a saver without a schema that is known here: nothing is looked at."""

    def require(self, saver: Any) -> None:
        """Check the tables of a saver, if that is needed now.

        Raises:
            SchemaError: If they are not what LangGraph makes, or something hangs on them that acts.
        """

    async def arequire(self, saver: Any) -> None:
        """Async version of `require`."""

    def before(self, setup: Callable[[], Any], saver: Any) -> Callable[[], Any]:
        """Return a saver's method ``setup``, with the check before it."""
        if iscoroutinefunction(setup):

            async def asetup() -> Any:
                await self.arequire(saver)
                return await setup()

            return asetup

        def checked_setup() -> Any:
            self.require(saver)
            return setup()

        return checked_setup


def run_on_loop(check: Callable[[Any], Any], saver: Any) -> None:
    """Run a check on the loop of an async saver, from another thread.

    On the loop's own thread nothing is checked: there the saver refuses each call that is not awaited.
    """
    try:
        here = asyncio.get_running_loop()
    except RuntimeError:
        here = None
    if here is not saver.loop:
        asyncio.run_coroutine_threadsafe(check(saver), saver.loop).result()
