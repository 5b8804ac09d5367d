from logstore.index.keys import OpenNode, StreamRecord

def layout() -> dict[str, int]: ...

class Handle:
    number: int
    usable: bool
    version: int
    def learn(self, record: StreamRecord, node: OpenNode | None) -> bool: ...
    def give_back(self, record: StreamRecord, node: OpenNode) -> None: ...
    def frame(
        self,
        fields: dict[str | bytes | int, str | bytes | int],
        ms: int,
        seq: int,
        at: int,
        commit: int,
        durable_upto: int,
        seed: int,
        bytes_max: int,
        entries_max: int,
    ) -> bytes | None: ...
    def apply(self, frame: bytes, at: int, seed: int) -> bool: ...
