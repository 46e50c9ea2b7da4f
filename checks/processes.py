"""Processes of a pool that end when the work ends, is broken off, or its own process is gone.

A terminal sends an interrupt to every process of its foreground group. Here the parent alone acts
on it: workers never see one, and stand in process groups of their own, so that they are ended
together with whatever they started.
"""

import concurrent.futures
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from multiprocessing.process import BaseProcess
from typing import Any

GROUPS = hasattr(os, "setpgid")  # not on Windows


@contextlib.contextmanager
def executors(
    count: int, size: int, initializer: Callable[[], None]
) -> Iterator[list[concurrent.futures.ProcessPoolExecutor]]:
    """Yield `count` executors of `size` processes each, started afresh (not forked).

    What leaves the block early, an interrupt or an error, ends the processes at once; otherwise
    they finish what they were given. Submit the first jobs under `uninterrupted`.
    """
    before = set(multiprocessing.active_children())
    context = multiprocessing.get_context("spawn")
    made = [
        concurrent.futures.ProcessPoolExecutor(
            size, mp_context=context, initializer=start, initargs=(initializer,)
        )
        for _ in range(count)
    ]
    try:
        yield made
        for executor in made:
            executor.shutdown()
    except BaseException:
        with uninterrupted():
            for process in set(multiprocessing.active_children()) - before:
                end(process)
            for executor in made:
                executor.shutdown(cancel_futures=True)
        raise


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Put an interrupt off until the end of the block, where it raises KeyboardInterrupt.

    Processes started inside inherit the blocked signal: they are safe before their first import.
    """
    came: list[int] = []
    main = threading.current_thread() is threading.main_thread()
    # Both: a signal to the process may be taken by another thread, which sets off the handler.
    handler: Any = signal.signal(signal.SIGINT, lambda n, _: came.append(n)) if main else None
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if GROUPS else None
    try:
        yield
    finally:
        if mask is not None:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if main:
            signal.signal(signal.SIGINT, signal.SIG_DFL if handler is None else handler)
    if came:
        raise KeyboardInterrupt


def start(initializer: Callable[[], None]) -> None:
    """What a worker does first: interrupts ignored, a group of its own, an eye on its parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if GROUPS:
        os.setpgid(0, 0)
    threading.Thread(target=_outlive_no_parent, daemon=True).start()
    initializer()


def _outlive_no_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        _kill(os.getpid())


def end(process: BaseProcess) -> None:
    """End a worker and what it started."""
    if process.pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            _kill(process.pid)


def _kill(pid: int) -> None:
    """Kill a process: with its group where it leads one, alone while it is still importing."""
    if GROUPS and os.getpgid(pid) == pid:
        os.killpg(pid, signal.SIGKILL)
    else:
        os.kill(pid, signal.SIGKILL if GROUPS else signal.SIGTERM)
