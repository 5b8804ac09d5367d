from collections.abc import Callable
from typing import Any

from logstore.fs import File
from logstore.index.keys import StreamRecord

MISS: object

def words_of_reading() -> dict[str, int]: ...
def limits_of_reading() -> dict[str, int]: ...

class NodeCache:
    held_bytes: int
    def __init__(self, most_bytes: int) -> None: ...
    def get(
        self, position: int, stream: int, master: tuple[int, int], lp_bytes: int, /
    ) -> bytes | None: ...
    def put(self, position: int, stream: int, master: tuple[int, int], lp: bytes, /) -> None: ...
    def clear(self) -> None: ...

class Stream: ...

class Reader:
    def __init__(
        self,
        memory: Any,
        seed: int,
        nodes: NodeCache,
        files: dict[int, File],
        source: Callable[[int], File],
        now_ms: Callable[[], int],
    ) -> None: ...
    def record(self, name: bytes) -> StreamRecord | object: ...
    def get(self, name: bytes, id: tuple[int, int], maker: Any) -> Any: ...
    def batch(
        self,
        name: bytes,
        start: tuple[int, int],
        end: tuple[int, int],
        limit: int,
        reverse: bool,
        walked: Any,
        decode: Any,
    ) -> Any: ...
    def of(self, view: Any, name: bytes) -> Stream | None: ...
    def place(
        self, name: bytes, ms: int, seq: int
    ) -> tuple[int, int, int, int, bytes, bytes] | object | None: ...
    def place_in(
        self, stream: Stream, view: Any, ms: int, seq: int
    ) -> tuple[int, int, int, int, bytes, bytes] | object | None: ...
    def get_in(self, stream: Stream, view: Any, id: tuple[int, int], maker: Any) -> Any: ...
    def batch_in(
        self,
        stream: Stream,
        view: Any,
        start: tuple[int, int],
        end: tuple[int, int],
        limit: int,
        reverse: bool,
        decode: Any,
    ) -> Any: ...
    def keep(self, stream: Stream) -> None: ...
    def close(self) -> None: ...
